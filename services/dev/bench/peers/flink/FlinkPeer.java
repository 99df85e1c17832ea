import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.time.Duration;
import java.time.Instant;
import java.util.Locale;
import java.util.TimeZone;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import javax.sql.XADataSource;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichFilterFunction;
import org.apache.flink.api.common.restartstrategy.RestartStrategies;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.connector.jdbc.JdbcExactlyOnceOptions;
import org.apache.flink.connector.jdbc.JdbcExecutionOptions;
import org.apache.flink.connector.jdbc.JdbcSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.contrib.streaming.state.EmbeddedRocksDBStateBackend;
import org.apache.flink.contrib.streaming.state.RocksDBConfigurableOptions;
import org.apache.flink.formats.json.JsonDeserializationSchema;
import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;
import org.apache.flink.streaming.api.CheckpointingMode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.postgresql.xa.PGXADataSource;

/**
 * The peer of the throughput benchmark: Apache Flink's own exactly-once way into Postgres.
 *
 * <p>Kafka source, deduplication by event ID in keyed state ("heap", "rocksdb" or "none"), and the
 * JDBC connector's XA sink, which commits with Flink's checkpoints. Set up as its documentation
 * tells: rewritten batch inserts, object reuse, incremental checkpoints with Bloom filters, a task
 * for each core. Prints a line of JSON for each tenth of a second: what was read in it. The last one
 * ends when the job has ended, so all of its transactions are committed.
 */
public class FlinkPeer {
  private static final int FRAME_BYTES = 5;
  private static final int CHECKPOINT_MS = 2_000;
  private static final int INSERTS_PER_STATEMENT = 5_000;
  private static final int SAMPLE_MS = 100;

  /** The mini cluster runs in this JVM, so its tasks count here. */
  private static final LongAdder READ = new LongAdder();

  private static final AtomicLong FIRST_READ_AT_MS = new AtomicLong();

  /** Fields as Flink's own serializer for plain objects wants them. */
  public static class PageView {
    public String eventId;
    public long userId;
    public String page;
    public String country;
    public long viewedAtMicros;
    public double value;
  }

  abstract static class PageViewSchema implements DeserializationSchema<PageView> {
    abstract PageView decode(byte[] message) throws IOException;

    @Override
    public PageView deserialize(byte[] message) throws IOException {
      FIRST_READ_AT_MS.compareAndSet(0, System.currentTimeMillis());
      READ.increment();
      return decode(message);
    }

    @Override
    public boolean isEndOfStream(PageView view) {
      return false;
    }

    @Override
    public TypeInformation<PageView> getProducedType() {
      return TypeInformation.of(PageView.class);
    }
  }

  static class AvroPageViews extends PageViewSchema {
    private final String contract;
    private transient GenericDatumReader<GenericRecord> reader;
    private transient BinaryDecoder decoder;
    private transient GenericRecord record;

    AvroPageViews(String contract) {
      this.contract = contract;
    }

    @Override
    public void open(InitializationContext context) {
      Schema schema = new Schema.Parser().parse(contract);
      for (Schema.Field field : schema.getFields()) {
        if (field.schema().getType() == Schema.Type.STRING) {
          GenericData.setStringType(field.schema(), GenericData.StringType.String);
        }
      }
      reader = new GenericDatumReader<>(schema);
    }

    @Override
    PageView decode(byte[] message) throws IOException {
      int length = message.length - FRAME_BYTES;
      decoder = DecoderFactory.get().binaryDecoder(message, FRAME_BYTES, length, decoder);
      record = reader.read(record, decoder);
      PageView view = new PageView();
      view.eventId = (String) record.get("event_id");
      view.userId = (Long) record.get("user_id");
      view.page = (String) record.get("page");
      view.country = (String) record.get("country");
      view.viewedAtMicros = (Long) record.get("viewed_at");
      view.value = (Double) record.get("value");
      return view;
    }
  }

  /** Fields by the names that they have in documents. */
  public static class PageViewDocument {
    public String event_id;
    public long user_id;
    public String page;
    public String country;
    public String viewed_at;
    public double value;
  }

  /** Flink's own JSON format. */
  static class JsonPageViews extends PageViewSchema {
    private final JsonDeserializationSchema<PageViewDocument> documents =
        new JsonDeserializationSchema<>(PageViewDocument.class);

    @Override
    public void open(InitializationContext context) {
      documents.open(context);
    }

    @Override
    PageView decode(byte[] message) throws IOException {
      PageViewDocument document = documents.deserialize(message);
      PageView view = new PageView();
      view.eventId = document.event_id;
      view.userId = document.user_id;
      view.page = document.page;
      view.country = document.country;
      Instant viewedAt = Instant.parse(document.viewed_at);
      view.viewedAtMicros = viewedAt.getEpochSecond() * 1_000_000 + viewedAt.getNano() / 1_000;
      view.value = document.value;
      return view;
    }
  }

  static class FirstOfEachId extends RichFilterFunction<PageView> {
    private transient ValueState<Boolean> seen;

    @Override
    public void open(Configuration configuration) {
      ValueStateDescriptor<Boolean> descriptor = new ValueStateDescriptor<>("seen", Boolean.class);
      descriptor.enableTimeToLive(
          StateTtlConfig.newBuilder(Duration.ofDays(1))
              .setUpdateType(StateTtlConfig.UpdateType.OnCreateAndWrite)
              .setStateVisibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
              .build());
      seen = getRuntimeContext().getState(descriptor);
    }

    @Override
    public boolean filter(PageView view) throws IOException {
      if (seen.value() != null) {
        return false;
      }
      seen.update(true);
      return true;
    }
  }

  /** Arguments: broker, topic, contract's file, JDBC URL, table, directory, deduplication, format. */
  public static void main(String[] arguments) throws Exception {
    TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
    String broker = arguments[0];
    String topic = arguments[1];
    String contract = Files.readString(Path.of(arguments[2]));
    String url = arguments[3];
    String table = arguments[4];
    String deduplication = arguments[6];
    PageViewSchema schema =
        arguments[7].equals("json") ? new JsonPageViews() : new AvroPageViews(contract);

    StreamExecutionEnvironment environment =
        localEnvironment("file://" + arguments[5], deduplication);
    KafkaSource<PageView> source =
        KafkaSource.<PageView>builder()
            .setBootstrapServers(broker)
            .setTopics(topic)
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setProperty("commit.offsets.on.checkpoint", "false")
            .setDeserializer(
                KafkaRecordDeserializationSchema.valueOnly(schema))
            .build();
    DataStream<PageView> views =
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "kafka");
    if (!deduplication.equals("none")) {
      views = views.keyBy(view -> view.eventId).filter(new FirstOfEachId());
    }
    // The connector's newer sink fails when two checkpoints pass after the end of the input.
    views.addSink(
        JdbcSink.<PageView>exactlyOnceSink(
            "INSERT INTO " + table
                + " (event_id, user_id, page, country, viewed_at, value)"
                + " VALUES (?, ?, ?, ?, ?, ?)",
            FlinkPeer::bind,
            JdbcExecutionOptions.builder()
                .withBatchSize(INSERTS_PER_STATEMENT)
                .withBatchIntervalMs(0)
                .withMaxRetries(0)
                .build(),
            JdbcExactlyOnceOptions.builder().withTransactionPerConnection(true).build(),
            () -> dataSource(url)));

    Thread reporter = new Thread(FlinkPeer::reportUntilInterrupted);
    reporter.setDaemon(true);
    reporter.start();
    environment.execute("flink-peer");
    reporter.interrupt();
    reporter.join();
  }

  private static StreamExecutionEnvironment localEnvironment(
      String directory, String deduplication) {
    Configuration settings = new Configuration();
    settings.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(2048));
    settings.set(TaskManagerOptions.NETWORK_MEMORY_MIN, MemorySize.ofMebiBytes(128));
    settings.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.ofMebiBytes(128));
    // Off by default; without them each new ID is looked for in every file of the state.
    settings.set(RocksDBConfigurableOptions.USE_BLOOM_FILTER, true);
    StreamExecutionEnvironment environment =
        StreamExecutionEnvironment.createLocalEnvironment(
            Runtime.getRuntime().availableProcessors(), settings);
    environment.enableCheckpointing(CHECKPOINT_MS, CheckpointingMode.EXACTLY_ONCE);
    environment.getCheckpointConfig().setCheckpointStorage(directory);
    environment.setRestartStrategy(RestartStrategies.noRestart());
    environment.getConfig().enableObjectReuse();
    environment.setStateBackend(
        deduplication.equals("rocksdb")
            ? new EmbeddedRocksDBStateBackend(true)
            : new HashMapStateBackend());
    return environment;
  }

  private static void bind(PreparedStatement statement, PageView view) throws SQLException {
    statement.setString(1, view.eventId);
    statement.setLong(2, view.userId);
    statement.setString(3, view.page);
    statement.setString(4, view.country);
    Timestamp viewedAt = new Timestamp(Math.floorDiv(view.viewedAtMicros, 1_000L));
    viewedAt.setNanos((int) Math.floorMod(view.viewedAtMicros, 1_000_000L) * 1_000);
    statement.setTimestamp(5, viewedAt);
    statement.setDouble(6, view.value);
  }

  private static XADataSource dataSource(String url) {
    PGXADataSource source = new PGXADataSource();
    source.setUrl(url);
    source.setUser(System.getenv("PGUSER"));
    source.setPassword(System.getenv("PGPASSWORD"));
    source.setReWriteBatchedInserts(true);
    return source;
  }

  private static void reportUntilInterrupted() {
    long since = 0;
    long reported = 0;
    boolean ended = false;
    while (!ended) {
      try {
        Thread.sleep(SAMPLE_MS);
      } catch (InterruptedException interrupt) {
        ended = true;
      }
      long now = System.currentTimeMillis();
      long read = READ.sum();
      if (since == 0) {
        since = FIRST_READ_AT_MS.get();
      }
      if (read > reported || ended) {
        System.out.printf(
            Locale.ROOT,
            "{\"planned_at\": %.3f, \"published_at\": %.3f, \"read\": %d}%n",
            since / 1000.0, now / 1000.0, read - reported);
        reported = read;
        since = now;
      }
    }
  }
}
