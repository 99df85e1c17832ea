// The ledger, newest first.

import { ask, el, empty, moment, of, seconds, table, whole } from "./elements.js";

const COLUMNS = [
  ["batch", "batch", true], ["epoch", "epoch", true], ["batch", "published"], ["ranges", "offsets"],
  ["counts", "read", true], ["counts", "committed", true], ["counts", "duplicate", true], ["counts", "dead", true],
  ["counts", "late", true], ["phase", "stage", true], ["phase", "publish", true],
  ["restagings", "restaged", true], ["branches", "branches"],
];

export async function showBatches(view, name, before = null) {
  const found = await ask(of(name, `batches${before === null ? "" : `?before=${before}`}`));
  view.replaceChildren(
    el("h1", {}, `Batches of ${name}`),
    found.length ? table(COLUMNS, found.map(row)) : empty("No batch was published yet."),
    found.length && found.at(-1).sequence > 1
      ? el("a", { class: "more", href: `#/${encodeURIComponent(name)}/batches/${found.at(-1).sequence}` }, "Older batches")
      : null,
  );
}

function row(one) {
  return [
    whole(one.sequence), whole(one.epoch), el("span", { class: "nowrap" }, moment(one.published_at)),
    el("div", {}, one.ranges.map(([topic, partition, from, until]) =>
      el("div", { class: "nowrap" }, `${topic}[${partition}] ${whole(from)} … ${whole(until)}`))),
    whole(one.read), whole(one.committed), whole(one.duplicate), whole(one.dead), whole(one.late),
    seconds(one.stage_s), seconds(one.publish_s), whole(one.restagings),
    one.branches ? `${one.branches - one.branches_in_doubt} of ${one.branches}` : "–",
  ];
}
