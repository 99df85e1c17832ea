// The last half hour of a pipeline as charts: what the ledger has of its batches, and what
// the monitor has gauged beside them.

import { byBytes, byCount, bySeconds, byShare, chart, gaugesOf, slotsOf } from "./charts.js";
import { ask, el, empty, of } from "./elements.js";

const SLOT_S = 10;
const SLOTS = 180;
// Gauges are kept every half minute.
const GAUGE_S = 30;
const REASONS = 4;

export async function showTrends(place, name) {
  const span = `slot_s=${SLOT_S}&slots=${SLOTS}`;
  try {
    const [history, { slots, gauges }] = await Promise.all([ask(of(name, `history?${span}`)), ask(of(name, `charts?${span}`))]);
    const drawn = [
      ...(history.length ? ofBatches(history, slots) : []),
      ...(gauges.length ? ofGauges(gauges) : []),
    ];
    place.replaceChildren(
      history.length ? "" : empty("Nothing was published in the last half hour."),
      el("div", { class: "charts" }, drawn));
  } catch (error) {
    place.replaceChildren(empty(error.message));
  }
  place.classList.remove("awaited");
}

function ofBatches(history, { committed, stage_s: stage, publish_s: publish, dead }) {
  const { began, of: values, at } = slotsOf(history, SLOT_S, SLOTS);
  const ofCommitted = (key) => at(committed, (slot) => slot[key]);
  const reasons = Object.entries(dead)
    .map(([reason, slots]) => [reason, slots, Object.values(slots).reduce((sum, count) => sum + count, 0)])
    .sort((a, b) => b[2] - a[2]);
  const isSearched = Object.values(committed).some((slot) => slot.looked_up_share !== null);
  return [
    chart("chart_rate", "events/s", began, [["read", values((slot) => slot.read / SLOT_S)]], byCount),
    chart("chart_latency", "seconds from Kafka to COMMIT", began,
      [["median", ofCommitted("latency_p50_s")], ["95 %", ofCommitted("latency_p95_s")], ["99 %", ofCommitted("latency_p99_s")]], bySeconds),
    chart("chart_batch", "seconds from plan to publish", began,
      [["median", values((slot) => slot.batch_p50_s)], ["95 %", values((slot) => slot.batch_p95_s)]], bySeconds),
    chart("chart_phases", "seconds of the phases", began, [["stage", at(stage)], ["publish", at(publish)]], bySeconds),
    chart("chart_counts", `in ${SLOT_S} s`, began,
      [["duplicate", values((slot) => slot.duplicate)], ["late", values((slot) => slot.late)], ["dead", values((slot) => slot.dead)]], byCount),
    ...(reasons.length ? [chart("chart_dead", `dead letters in ${SLOT_S} s`, began,
      reasons.slice(0, REASONS).map(([reason, slots]) => [reason, at(slots)]), byCount)] : []),
    ...(isSearched ? [chart("chart_searches", "IDs that a filter did not spare", began,
      [["looked up", ofCommitted("looked_up_share")], ["in vain", ofCommitted("false_positive_share")]], byShare)] : []),
  ];
}

function ofGauges(gauges) {
  const { began, of: values } = gaugesOf(gauges, GAUGE_S, (SLOT_S * SLOTS) / GAUGE_S);
  const hasAny = (key) => gauges.some((one) => one[key] !== null);
  return [
    chart("freshness", "freshness", began, [["freshness", values((one) => one.freshness_s)]], bySeconds),
    chart("chart_backlog", "seconds of backlog", began,
      [["to catch up", values((one) => one.catch_up_s)], ["oldest unread", values((one) => one.unread_s)]], bySeconds),
    chart("lag", "lag", began, [["offsets", values((one) => one.lag)]], byCount),
    ...(hasAny("headroom_s")
      ? [chart("headroom", "until Kafka deletes what is unread", began, [["headroom", values((one) => one.headroom_s)]], bySeconds)] : []),
    chart("chart_prepared", "prepared transactions, in doubt", began,
      [["prepared", values((one) => one.prepared)], ["batches in doubt", values((one) => one.in_doubt)]], byCount),
    chart("chart_prepared", "age of the oldest", began,
      [["prepared", values((one) => one.prepared_s)], ["in doubt", values((one) => one.in_doubt_s)]], bySeconds),
    chart("state_bytes", "size of state", began,
      [["state", values((one) => one.state_bytes)], ...(hasAny("catalog_bytes") ? [["catalog", values((one) => one.catalog_bytes)]] : [])], byBytes),
    ...(hasAny("catalog_ids")
      ? [chart("state_rows", "IDs remembered", began, [["IDs", values((one) => one.catalog_ids)]], byCount)] : []),
  ];
}
