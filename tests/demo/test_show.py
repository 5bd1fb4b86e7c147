"""What the demo prints can be taken from the screen as it stands, however narrow that is."""

from io import StringIO
from pathlib import Path

from rich.console import Console

from headrace.demo.place import Place
from headrace.demo.show import Story, python_snippet, sql_line


def test_lines_to_type_are_whole_on_a_narrow_screen(tmp_path: Path) -> None:
    place = Place(tmp_path / ("deep/" * 20) / "demo")
    screen = StringIO()

    Story(Console(file=screen, width=40)).way_on(place, kept=True)

    lines = screen.getvalue().splitlines()
    for typed in (*python_snippet(place).splitlines(), sql_line(place)):
        assert typed in lines
    assert any(str(place.lake) in line for line in lines)
    assert any(str(place.server) in line for line in lines)
