"""The functions of Spark 4.2.0, by what a pipeline's expressions may do with them.

The list comes from Spark's own function registry. It is kept here as data, because a
pipeline file is checked before Spark starts, and the check must find misspelt
functions.
"""

from __future__ import annotations

import enum

_ONE_EVENT = "An expression here must return one value for one event."

_UNREPEATABLE = """
    aes_encrypt curdate current_catalog current_database current_date current_path
    current_schema
    current_time current_timestamp current_timezone current_user
    input_file_block_length input_file_block_start input_file_name java_method
    localtimestamp monotonically_increasing_id now rand randn random randstr reflect
    session_user shuffle spark_partition_id try_reflect uniform user uuid version
"""

_AGGREGATES = """
    any any_value approx_count_distinct approx_percentile approx_top_k
    approx_top_k_accumulate approx_top_k_combine array_agg avg bit_and bit_or
    bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or
    collect_list collect_set corr count count_if count_min_sketch covar_pop
    covar_samp every first first_value grouping grouping_id histogram_numeric
    hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double
    kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double
    kll_sketch_agg_float kurtosis last last_value listagg max max_by mean measure median
    min min_by mode percentile percentile_approx percentile_cont percentile_disc
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx
    regr_sxy regr_syy schema_of_variant_agg skewness some std stddev stddev_pop
    stddev_samp string_agg sum theta_intersection_agg
    theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance vector_avg
    vector_sum
"""

_OVER_WINDOWS = """
    cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number
    session_window window window_time
"""

_GENERATORS = """
    explode explode_outer inline inline_outer json_tuple posexplode
    posexplode_outer stack
"""

_FAILING = """
    assert_true raise_error
"""

_DOCUMENTS = """
    from_xml schema_of_xml to_xml xpath xpath_boolean xpath_double xpath_float xpath_int
    xpath_long xpath_number xpath_short xpath_string
"""

_FOREIGN = """
    from_avro from_protobuf schema_of_avro to_avro to_protobuf
"""

_SKETCHES = """
    approx_top_k_estimate hll_sketch_estimate hll_union kll_sketch_get_n_bigint
    kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint
    kll_sketch_get_quantile_double kll_sketch_get_quantile_float
    kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
    kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
    kll_sketch_to_string_bigint kll_sketch_to_string_double
    kll_sketch_to_string_float st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid
    st_srid theta_difference theta_intersection theta_sketch_estimate theta_union
    tuple_difference_double tuple_difference_integer tuple_difference_theta_double
    tuple_difference_theta_integer tuple_intersection_double tuple_intersection_integer
    tuple_intersection_theta_double tuple_intersection_theta_integer
    tuple_sketch_estimate_double tuple_sketch_estimate_integer
    tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double
    tuple_sketch_theta_integer tuple_union_double tuple_union_integer
    tuple_union_theta_double tuple_union_theta_integer
"""

_NEW = """
    is_valid_variant time_bucket time_from_micros time_from_millis
    time_from_seconds time_to_micros time_to_millis time_to_seconds
    vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm
    vector_normalize
"""

_PER_EVENT = """
    abs acos acosh add_months aes_decrypt aggregate and array array_append
    array_compact array_contains array_distinct array_except array_insert
    array_intersect array_join array_max array_min array_position array_prepend
    array_remove array_repeat array_size array_sort array_union arrays_overlap
    arrays_zip ascii asin asinh atan atan2 atanh base64 between bigint bin binary
    bit_count bit_get bit_length bitmap_bit_position bitmap_bucket_number
    bitmap_count boolean bround btrim cardinality cast cbrt ceil ceiling char
    char_length character_length chr coalesce collate collation concat concat_ws
    contains conv convert_timezone cos cosh cot crc32 csc date date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff
    datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees div
    double e element_at elt encode endswith equal_null exists exp expm1 extract
    factorial filter find_in_set flatten float floor forall format_number
    format_string from_csv from_json from_unixtime from_utc_timestamp get
    get_json_object getbit greatest hash hex hour hypot if ifnull ilike in initcap
    instr int is_valid_utf8 is_variant_null isnan isnotnull isnull json_array_length
    json_object_keys last_day lcase least left len length levenshtein like ln locate
    log log10 log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval
    make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz
    make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries
    map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with
    mask md5 minute mod month monthname months_between named_struct nanvl negative
    next_day not nullif nullifzero nvl nvl2 octet_length or overlay parse_json
    parse_url pi pmod position positive pow power printf quarter quote radians
    reduce regexp regexp_count regexp_extract regexp_extract_all regexp_instr
    regexp_like regexp_replace regexp_substr repeat replace reverse right rint rlike
    round rpad rtrim schema_of_csv schema_of_json schema_of_variant sec second
    sentences sequence sha sha1 sha2 shiftleft shiftright shiftrightunsigned sign
    signum sin sinh size slice smallint sort_array soundex space split split_part
    sqrt startswith str_to_map string struct substr substring substring_index tan
    tanh time time_diff time_trunc timestamp timestamp_micros timestamp_millis
    timestamp_seconds tinyint to_binary to_char to_csv to_date to_json to_number
    to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
    to_utc_timestamp to_varchar to_variant_object transform transform_keys
    transform_values translate trim trunc try_add try_aes_decrypt try_divide
    try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz
    try_make_timestamp_ntz try_mod try_multiply try_parse_json try_parse_url
    try_subtract try_to_binary try_to_date try_to_number try_to_time
    try_to_timestamp try_url_decode try_validate_utf8 try_variant_get typeof ucase
    unbase64 unhex unix_date unix_micros unix_millis unix_seconds unix_timestamp
    upper url_decode url_encode validate_utf8 variant_get weekday weekofyear when
    width_bucket xxhash64 year zeroifnull zip_with
"""

# These are written like functions, but are part of Spark's grammar, not its registry.
_GRAMMAR = """
    cast try_cast extract trim overlay position substring struct timestampadd
    timestampdiff dateadd date_add datediff date_diff
"""

_REFUSALS: dict[str, tuple[str, str, str]] = {
    name: (kind, why, fix)
    for names, kind, why, fix in (
        (
            _UNREPEATABLE,
            "does not give the same answer every time",
            "After a crash the same events run again and must give the same answer.",
            "Use a field of the event instead.",
        ),
        (
            _AGGREGATES,
            "aggregates many events",
            _ONE_EVENT,
            "Aggregate in a window output; across columns, use greatest or least.",
        ),
        (_OVER_WINDOWS, "reads many events", _ONE_EVENT, "Use a window output."),
        (
            _GENERATORS,
            "returns several rows",
            _ONE_EVENT,
            "Use a function such as exists, filter or aggregate on the array.",
        ),
        (
            _FAILING,
            "fails on purpose",
            "One event would stop the pipeline.",
            "Write the condition itself: a false one makes a dead letter.",
        ),
        (
            _DOCUMENTS,
            "reads or writes XML",
            "It can open files and use unlimited memory and time.",
            "Extract the values in a transform.",
        ),
        (
            _FOREIGN,
            "decodes by a schema that is not the contract's",
            "It can open files, load classes and use unlimited memory.",
            "Make it a field of the contract.",
        ),
        (
            _SKETCHES,
            "decodes a structure from bytes",
            "Damaged bytes may request more memory than is available.",
            "Use the aggregates of a window output.",
        ),
        (
            _NEW,
            "is new in Spark 4.2",
            (
                "Tallyweir does not know yet whether it is exact and limited in "
                "memory and time."
            ),
            "Compute it in a transform.",
        ),
    )
    for name in names.split()
}
_KNOWN = frozenset(_PER_EVENT.split() + _GRAMMAR.split())


class Argument(enum.Enum):
    """Constraints of an argument, so that the file, not an event, decides its cost."""

    #: A whole number by which the size of the value is multiplied.
    COUNT = enum.auto()
    #: A whole number of characters or elements of the value.
    LENGTH = enum.auto()
    #: A whole number of digits.
    DIGITS = enum.auto()
    #: Any literal.
    TEXT = enum.auto()
    #: A literal that is inserted many times.
    REPLACEMENT = enum.auto()
    #: A text that is inserted many times; a computed one must be short.
    SEPARATOR = enum.auto()
    #: A pattern of Java.
    REGEX = enum.auto()
    #: A pattern of Java whose search takes time linear in the length of the text.
    FAST_REGEX = enum.auto()
    #: A pattern of LIKE.
    LIKE = enum.auto()
    #: A format of Java.
    FORMAT = enum.auto()
    #: A type, or the types of columns.
    TYPES = enum.auto()
    #: A map of literals, with names of ``OPTIONS``.
    OPTIONS = enum.auto()


#: Arguments of functions that could take unbounded memory or time, by position from 0.
ARGUMENTS: dict[str, dict[int, Argument]] = {
    "array_insert": {1: Argument.LENGTH},
    "array_join": {1: Argument.SEPARATOR, 2: Argument.REPLACEMENT},
    "array_repeat": {1: Argument.COUNT},
    "bround": {1: Argument.DIGITS},
    "ceil": {1: Argument.DIGITS},
    "ceiling": {1: Argument.DIGITS},
    "concat_ws": {0: Argument.SEPARATOR},
    "date_format": {1: Argument.TEXT},
    "floor": {1: Argument.DIGITS},
    "format_number": {1: Argument.DIGITS},
    "format_string": {0: Argument.FORMAT},
    "from_csv": {1: Argument.TYPES, 2: Argument.OPTIONS},
    "from_json": {1: Argument.TYPES, 2: Argument.OPTIONS},
    "from_unixtime": {1: Argument.TEXT},
    "get_json_object": {1: Argument.TEXT},
    "ilike": {1: Argument.LIKE, 2: Argument.TEXT},
    "levenshtein": {2: Argument.LENGTH},
    "like": {1: Argument.LIKE, 2: Argument.TEXT},
    "lpad": {1: Argument.LENGTH},
    "parse_url": {2: Argument.FAST_REGEX},
    "printf": {0: Argument.FORMAT},
    "regexp": {1: Argument.REGEX},
    "regexp_count": {1: Argument.REGEX},
    "regexp_extract": {1: Argument.REGEX},
    "regexp_extract_all": {1: Argument.REGEX},
    "regexp_instr": {1: Argument.REGEX},
    "regexp_like": {1: Argument.REGEX},
    "regexp_replace": {1: Argument.REGEX, 2: Argument.REPLACEMENT},
    "regexp_substr": {1: Argument.REGEX},
    "repeat": {1: Argument.COUNT},
    "replace": {2: Argument.REPLACEMENT},
    "rlike": {1: Argument.REGEX},
    "round": {1: Argument.DIGITS},
    "rpad": {1: Argument.LENGTH},
    "schema_of_csv": {0: Argument.TEXT, 1: Argument.OPTIONS},
    "schema_of_json": {0: Argument.TEXT, 1: Argument.OPTIONS},
    "sentences": {1: Argument.TEXT, 2: Argument.TEXT},
    "space": {0: Argument.LENGTH},
    "split": {1: Argument.REGEX},
    "str_to_map": {1: Argument.FAST_REGEX, 2: Argument.FAST_REGEX},
    "to_char": {1: Argument.TEXT},
    "to_csv": {1: Argument.OPTIONS},
    "to_date": {1: Argument.TEXT},
    "to_json": {1: Argument.OPTIONS},
    "to_number": {1: Argument.TEXT},
    "to_time": {1: Argument.TEXT},
    "to_timestamp": {1: Argument.TEXT},
    "to_timestamp_ltz": {1: Argument.TEXT},
    "to_timestamp_ntz": {1: Argument.TEXT},
    "to_unix_timestamp": {1: Argument.TEXT},
    "to_varchar": {1: Argument.TEXT},
    "try_parse_url": {2: Argument.FAST_REGEX},
    "try_to_date": {1: Argument.TEXT},
    "try_to_number": {1: Argument.TEXT},
    "try_to_time": {1: Argument.TEXT},
    "try_to_timestamp": {1: Argument.TEXT},
    "try_variant_get": {1: Argument.TEXT, 2: Argument.TYPES},
    "unix_timestamp": {1: Argument.TEXT},
    "variant_get": {1: Argument.TEXT, 2: Argument.TYPES},
}

#: How many times as large as its arguments the value of a function may be, for
#: functions that write a character as several.
GROWING = {
    "base64": 2,
    "hex": 2,
    "initcap": 3,
    "lcase": 2,
    "lower": 2,
    "quote": 2,
    "split": 8,
    "regexp_extract_all": 8,
    "sentences": 8,
    "str_to_map": 8,
    "to_csv": 2,
    "to_json": 6,
    "transform": 4,
    "ucase": 3,
    "upper": 3,
    "url_encode": 3,
}

#: Allowed options of readers and writers of JSON and CSV, in small letters: they mean
#: the same in every session, and open, load and allocate nothing.
OPTIONS = frozenset(
    {
        "allowbackslashescapinganycharacter",
        "allowcomments",
        "allownonnumericnumbers",
        "allownumericleadingzeros",
        "allowsinglequotes",
        "allowunquotedcontrolchars",
        "allowunquotedfieldnames",
        "dateformat",
        "delimiter",
        "emptyvalue",
        "escape",
        "ignoreleadingwhitespace",
        "ignorenullfields",
        "ignoretrailingwhitespace",
        "mode",
        "nullvalue",
        "primitivesasstring",
        "quote",
        "sep",
        "timestampformat",
        "timestampntzformat",
    }
)


def find_refusal(name: str) -> tuple[str, str, str] | None:
    """Return what a refused function does, why it is refused, and what to use instead.

    Returns:
        Three fragments for an error; None for an allowed function, and for one that
        Spark does not know.
    """
    return _REFUSALS.get(name.lower())


def is_known(name: str) -> bool:
    """Return whether Spark has a function of this name that expressions may use."""
    return name.lower() in _KNOWN


def list_known() -> list[str]:
    """Return the allowed functions, for suggestions."""
    return sorted(_KNOWN)
