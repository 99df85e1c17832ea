// All pipelines, one line each.

import { alertsOf } from "./alerts.js";
import { el, empty, formula, moment, seconds, table, whole } from "./elements.js";

export function stateOf(one) {
  const isAmber = !["STOPPED", "PAUSED", "DRAINED"].includes(one.state) && (one.minute.dead > 0 || one.in_doubt > 1);
  return el("span", { class: `state ${one.state.replace(" ", "-")}${isAmber ? " amber" : ""}` }, one.state);
}

export function showOverview(view, look) {
  if (!look.pipelines.length) {
    view.replaceChildren(
      el("h1", {}, "Pipelines"),
      look.troubles.length
        ? empty("Nothing can be shown; the reason is below.")
        : empty("No pipeline has run yet. Start one: ", el("code", {}, "./tallyweir demo")),
    );
    return;
  }
  const focused = document.activeElement?.getAttribute("href");
  view.replaceChildren(
    el("h1", {}, "Pipelines"),
    table(
      [
        [null, "pipeline"], ["state", "state"], ["lag", "lag", true], ["catch_up", "to catch up", true],
        ["freshness", "freshness", true], ["rate", "events/s", true], ["dead", "dead, minute", true],
        ["receipt", "verified"], ["last_batch", "last batch", true],
      ],
      look.pipelines.map((one) => [
        el("div", {}, el("a", { href: `#/${encodeURIComponent(one.pipeline)}` }, one.pipeline),
          el("div", { class: "quiet" }, one.guarantee.replaceAll("_", " "))),
        el("div", {}, stateOf(one), one.cause ? el("div", { class: "cause" }, one.cause) : null, alertsOf(one)),
        whole(one.lag), seconds(one.catch_up_s), seconds(one.freshness_s),
        whole(one.events_per_second_minute), whole(one.minute.dead),
        receiptOf(one, `${seconds(one.receipt?.age_s)} ago`),
        el("span", {}, whole(one.last_sequence), el("div", { class: "quiet" },
          one.since_commit_s === null ? "never" : `${seconds(one.since_commit_s)} ago`)),
      ]),
    ),
  );
  // What is redrawn every two seconds must not take the keyboard's place away.
  if (focused) view.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

function receiptOf(one, when) {
  if (!one.receipt) return "never";
  const { is_verified: holds, summary, batches } = one.receipt;
  return el("span", { title: `${summary} (${whole(batches)} batches, by ${one.receipt.taken_by})` },
    el("span", { class: holds ? "holds" : "broken" }, holds ? "✓ holds" : "✗ broken"), el("div", { class: "quiet nowrap" }, when));
}

export function figures(one) {
  const shown = [
    ["state", "state", stateOf(one)],
    ["lag", "lag", whole(one.lag)],
    ["catch_up", "to catch up", seconds(one.catch_up_s)],
    ["freshness", "freshness", seconds(one.freshness_s)],
    ["chart_latency", "latency, 95 %", seconds(one.committed?.latency_p95_s)],
    ["rate", "events/s", whole(one.events_per_second_minute)],
    ["last_batch", "last batch", whole(one.last_sequence)],
    ["in_doubt", "in doubt", whole(one.in_doubt)],
    ["headroom", "headroom", seconds(one.gauges?.headroom_s)],
    ["watermark", "watermark", moment(one.watermark)],
    ["receipt", "verified", receiptOf(one, moment(one.receipt?.taken_at))],
    ["epoch", "driver", one.driver ? `epoch ${one.driver.epoch} on ${one.driver.host}` : "none yet"],
  ];
  return el("div", {},
    el("dl", { class: "figures" }, shown.map(([key, name, value]) =>
      el("div", {}, el("dt", {}, formula(key, name)), el("dd", {}, value)))),
    one.cause ? el("p", { class: "cause" }, one.cause) : null,
    alertsOf(one));
}
