from headrace.client import Consumer, Subscription


class Printed(Consumer):
    def on_data_event(self, event):
        print(event.op, event.table, event.row, flush=True)


Subscription("http://127.0.0.1:7070", "shop", Printed(), "printed.place").run()
