import com.github.shyiko.mysql.binlog.BinaryLogClient;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import java.lang.management.ManagementFactory;

/**
 * Reads a stretch of a binary log with the Java connector that Debezium stands on, and counts rows.
 *
 * <p>Arguments: port, user, file, position, changed rows after which it ends; the password is in {@code BENCH_PASSWORD}.
 * The last line of the output is JSON.
 */
public final class Binlog {
    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static long rows;

    private Binlog() {}

    public static void main(String[] arguments) throws Exception {
        long expected = Long.parseLong(arguments[4]);
        BinaryLogClient client = new BinaryLogClient(
                "127.0.0.1", Integer.parseInt(arguments[0]), arguments[1], System.getenv("BENCH_PASSWORD"));
        client.setServerId(4_000_000_002L);
        client.setBinlogFilename(arguments[2]);
        client.setBinlogPosition(Long.parseLong(arguments[3]));
        client.setKeepAlive(false);
        long began = System.nanoTime();
        double used = SYSTEM.getProcessCpuTime() / 1e9;
        client.registerEventListener(event -> {
            EventData data = event.getData();
            if (data instanceof WriteRowsEventData found) {
                rows += found.getRows().size();
            } else if (data instanceof UpdateRowsEventData found) {
                rows += found.getRows().size();
            } else if (data instanceof DeleteRowsEventData found) {
                rows += found.getRows().size();
            } else {
                return;
            }
            if (rows >= expected) {
                System.out.printf("{\"rows\": %d, \"run_s\": %.4f, \"run_cpu_s\": %.4f}%n",
                        rows, (System.nanoTime() - began) / 1e9, SYSTEM.getProcessCpuTime() / 1e9 - used);
                System.out.flush();
                Runtime.getRuntime().halt(0);
            }
        });
        client.connect();
    }
}
