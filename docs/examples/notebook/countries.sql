CREATE TABLE public.countries (code text PRIMARY KEY, region text NOT NULL);
INSERT INTO public.countries VALUES ('DE', 'Europe'), ('FR', 'Europe'), ('BR', 'Americas'), ('JP', 'Asia');
-- The pipeline's table, with a rule of its own: it refuses a view worth 100 or more.
CREATE TABLE public.views (
    event_id text PRIMARY KEY,
    page text NOT NULL,
    region text,
    viewed_at timestamptz,
    value double precision CHECK (value < 100),
    kafka_topic text,
    kafka_partition integer,
    kafka_offset bigint
);
