// Reads a stretch of a binary log with go-mysql's syncer and counts rows; the last line of the output is JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

func cpu() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	seconds := func(at syscall.Timeval) float64 { return float64(at.Sec) + float64(at.Usec)/1e6 }
	return seconds(used.Utime) + seconds(used.Stime)
}

func main() {
	flavor := flag.String("flavor", "mysql", "mysql or mariadb")
	port := flag.Int("port", 3306, "of 127.0.0.1")
	user := flag.String("user", "", "who logs in")
	file := flag.String("file", "", "of the log")
	position := flag.Uint("position", 4, "in the file")
	expected := flag.Int("expected", 0, "changed rows after which it ends")
	flag.Parse()
	started, used := time.Now(), cpu()
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 4_000_000_001, Flavor: *flavor, Host: "127.0.0.1", Port: uint16(*port),
		User: *user, Password: os.Getenv("BENCH_PASSWORD"),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	streamer, err := syncer.StartSync(mysql.Position{Name: *file, Pos: uint32(*position)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	rows := 0
	for rows < *expected {
		event, err := streamer.GetEvent(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if found, ok := event.Event.(*replication.RowsEvent); ok {
			images := 1
			switch event.Header.EventType {
			case replication.UPDATE_ROWS_EVENTv1, replication.UPDATE_ROWS_EVENTv2,
				replication.MARIADB_UPDATE_ROWS_COMPRESSED_EVENT_V1:
				images = 2
			}
			rows += len(found.Rows) / images
		}
	}
	said, _ := json.Marshal(map[string]any{
		"rows": rows, "run_s": time.Since(started).Seconds(), "run_cpu_s": cpu() - used})
	fmt.Println(string(said))
}
