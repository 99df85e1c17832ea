-- name: move_outbox
-- Also returns the digest of the messages, because the publisher may write messages but
-- not read them.
WITH message AS MATERIALIZED (
    SELECT kafka_topic, kafka_partition, kafka_offset,
           {topic} AS topic,
           {event_id} AS event_id,
           {key} AS key,
           convert_to(
               (SELECT row_to_json(message)::text FROM (SELECT {fields}) AS message),
               'UTF8'
           ) AS value
    FROM {staging}
    WHERE xmin = ANY(%(transactions)s::xid[])
),
moved AS (
    INSERT INTO tallyweir.outbox (
        pipeline, sequence, kafka_topic, kafka_partition, kafka_offset, topic, event_id,
        key, value
    )
    SELECT %(pipeline)s, %(sequence)s, kafka_topic, kafka_partition, kafka_offset,
           topic, event_id, key, value
    FROM message
)
SELECT count(*), coalesce(sum({hash}), 0)
FROM message
