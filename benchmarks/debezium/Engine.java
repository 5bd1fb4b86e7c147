import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import io.debezium.engine.format.Json;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.function.Consumer;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Runs Debezium's embedded engine with a consumer that does nothing but count, and says when it had how much.
 *
 * <p>One argument: a properties file. What begins with {@code bench.} is ours, the rest is the engine's:
 * {@code bench.format} connect, json or json-each (one call per record, processed in parallel);
 * {@code bench.expected} records after which it ends, 0 for none; {@code bench.until} an id whose log event ends it, or
 * the word {@code snapshot}: then only rows of a snapshot are expected; {@code bench.events} a file for one line per log event:
 * id, at_us and the time it was seen, both in microseconds since 1970. The last line of the output is JSON; its times
 * are milliseconds since 1970, its CPU times seconds of this process.
 */
public final class Engine {
    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final CountDownLatch DONE = new CountDownLatch(1);

    private final long expected;
    private final String until;
    private final boolean keepEvents;
    private final List<long[]> events = new ArrayList<>();
    private long records;
    private long reads;
    private volatile boolean ending;
    private Moment first;
    private Moment half;
    private Moment last;
    private Moment firstRead;
    private Moment lastRead;
    private volatile String failure = "";

    /** When something happened, and what the process had used by then. */
    private record Moment(long ms, double cpu) {
        static Moment now() {
            return new Moment(System.currentTimeMillis(), SYSTEM.getProcessCpuTime() / 1e9);
        }

        static String json(String name, Moment moment) {
            return moment == null ? "" : String.format(
                    ", \"%s_ms\": %d, \"%s_cpu_s\": %.3f", name, moment.ms, name, moment.cpu);
        }
    }

    private Engine(long expected, String until, boolean keepEvents) {
        this.expected = expected;
        this.until = until;
        this.keepEvents = keepEvents;
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (var reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(reader);
        }
        String format = (String) settings.remove("bench.format");
        long expected = Long.parseLong((String) settings.remove("bench.expected"));
        String until = (String) settings.remove("bench.until");
        String eventFile = (String) settings.remove("bench.events");
        Engine bench = new Engine(expected, until, !eventFile.isEmpty());
        Moment started = Moment.now();
        try (DebeziumEngine<?> engine = bench.build(format, settings)) {
            Thread thread = new Thread(engine, "engine");
            thread.start();
            System.out.println("started");
            DONE.await();
        } catch (IllegalStateException ended) {
            // It had ended by itself; why stands in the failure.
            bench.failure = bench.failure.isEmpty() && !bench.ending ? ended.toString() : bench.failure;
        }
        if (bench.keepEvents) {
            try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(Path.of(eventFile)))) {
                for (long[] event : bench.events) {
                    out.println(event[0] + " " + event[1] + " " + event[2]);
                }
            }
        }
        System.out.println("{\"records\": " + bench.records + ", \"reads\": " + bench.reads
                + ", \"vm_ms\": " + ManagementFactory.getRuntimeMXBean().getStartTime()
                + Moment.json("engine", started) + Moment.json("first", bench.first)
                + Moment.json("half", bench.half) + Moment.json("last", bench.last)
                + Moment.json("first_read", bench.firstRead) + Moment.json("last_read", bench.lastRead)
                + ", \"failure\": \"" + bench.failure.replaceAll("[\"\\\\\\s]+", " ") + "\"}");
        System.exit(bench.failure.isEmpty() ? 0 : 1);
    }

    private DebeziumEngine<?> build(String format, Properties settings) {
        switch (format) {
            case "connect":
                return DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                        .using(settings)
                        .using(this::ended)
                        .notifying((batch, committer) -> {
                            for (RecordChangeEvent<SourceRecord> event : batch) {
                                look(event.record());
                            }
                            committer.markProcessed(batch.get(batch.size() - 1));
                            committer.markBatchFinished();
                            count(batch.size());
                        })
                        .build();
            case "json":
                return DebeziumEngine.create(Json.class)
                        .using(settings)
                        .using(this::ended)
                        .notifying((batch, committer) -> {
                            committer.markProcessed(batch.get(batch.size() - 1));
                            committer.markBatchFinished();
                            count(batch.size());
                        })
                        .build();
            case "json-each":
                Consumer<ChangeEvent<String, String>> each = event -> count(1);
                return DebeziumEngine.create(Json.class)
                        .using(settings).using(this::ended).notifying(each).build();
            default:
                throw new IllegalArgumentException(format);
        }
    }

    /** Take note of what a single record says; only where events or the end of a snapshot are asked for. */
    private void look(SourceRecord record) {
        if (!keepEvents && until.isEmpty()) {
            return;
        }
        if (!(record.value() instanceof Struct value)) {
            return;
        }
        if (value.schema().field("op") == null) {
            if (value.schema().field("aggregate_type") != null
                    && "Incremental Snapshot".equals(value.getString("aggregate_type"))) {
                System.out.println("snapshot " + value.getString("type"));
            }
            return;
        }
        if ("r".equals(value.getString("op"))) {
            reads++;
            if (firstRead == null) {
                firstRead = Moment.now();
            }
            lastRead = null;
            return;
        }
        Struct after = value.getStruct("after");
        if (after == null || after.schema().field("at_us") == null) {
            return;
        }
        long id = after.getInt64("id");
        if (Long.toString(id).equals(until)) {
            ending = true;
            return;
        }
        if (keepEvents) {
            var now = java.time.Instant.now();
            events.add(new long[] {
                id, after.getInt64("at_us"), now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000});
        }
    }

    private synchronized void count(int size) {
        if (first == null) {
            first = Moment.now();
        }
        records += size;
        if (reads > 0 && lastRead == null) {
            lastRead = Moment.now();
        }
        if (expected > 0) {
            long had = until.equals("snapshot") ? reads : records;
            if (half == null && had * 2 >= expected) {
                half = Moment.now();
            }
            if (last == null && had >= expected) {
                last = Moment.now();
                ending = true;
            }
        }
        if (ending) {
            DONE.countDown();
        }
    }

    private void ended(boolean success, String message, Throwable error) {
        // Closing it in the middle of a batch is no failure of its own.
        if (!success && !ending) {
            failure = message + (error == null ? "" : ": " + error);
        }
        DONE.countDown();
    }
}
