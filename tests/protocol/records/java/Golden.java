// Apache Kafka's own record classes as the judge of protocol/records.
//
//   java -cp 'libs/*' Golden.java write DIRECTORY      one batch per codec, DIRECTORY/<codec>.bin
//   java -cp 'libs/*' Golden.java read FILE...         one line per batch of each file
//
// The four compressed files beside this one are kept; tests/protocol/records/test_record.py knows their records.

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.zip.CRC32;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

public class Golden {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) {
            for (CompressionType type : CompressionType.values()) {
                Files.write(Path.of(args[1], type.name + ".bin"), batch(type));
            }
            return;
        }
        for (int i = 1; i < args.length; i++) {
            for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(Path.of(args[i])))).batches()) {
                System.out.println(describe(batch));
            }
        }
    }

    private static byte[] batch(CompressionType type) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1 << 20), (byte) 2, Compression.of(type).build(), TimestampType.CREATE_TIME,
            40L, 1700000000000L, 4242L, (short) 7, 100, true, 3);
        for (int i = 0; i < 200; i++) {
            byte[] key = i % 3 == 0 ? null : ("key-" + i).getBytes();
            byte[] value = i % 5 == 0 ? null : ("value ".repeat(150) + i).getBytes();
            Header[] headers = i % 2 == 0 ? new Header[0] : new Header[] {
                new RecordHeader("h", ("x" + i).getBytes()), new RecordHeader("none", (byte[]) null), new RecordHeader("h", new byte[0])};
            builder.append(1700000000000L + (i % 7) * 1000L, key, value, headers);
        }
        ByteBuffer built = builder.build().buffer();
        byte[] bytes = new byte[built.remaining()];
        built.get(bytes);
        return bytes;
    }

    private static String describe(RecordBatch batch) {
        batch.ensureValid();
        CRC32 sum = new CRC32();
        String marker = "";
        int count = 0;
        for (Record record : batch) {
            record.ensureValid();
            count++;
            add(sum, record.offset() + " " + record.timestamp());
            add(sum, record.key());
            add(sum, record.value());
            for (Header header : record.headers()) {
                add(sum, header.key());
                add(sum, header.value() == null ? null : ByteBuffer.wrap(header.value()));
            }
            if (batch.isControlBatch()) {
                marker = " " + ControlRecordType.parse(record.key()) + " " + EndTransactionMarker.deserialize(record).coordinatorEpoch();
            }
        }
        return batch.compressionType() + " " + batch.baseOffset() + " " + batch.lastOffset() + " " + batch.producerId() + " "
            + batch.isTransactional() + " " + count + " " + sum.getValue() + marker;
    }

    private static void add(CRC32 sum, String text) {
        sum.update((text + ";").getBytes(java.nio.charset.StandardCharsets.UTF_8));
    }

    private static void add(CRC32 sum, ByteBuffer bytes) {
        if (bytes == null) {
            add(sum, "null");
        } else {
            sum.update(bytes.duplicate());
            add(sum, "");
        }
    }
}
