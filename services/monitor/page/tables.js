// The tables of a pipeline's outputs.

import { ask, el, empty, moment, of, seconds, table, whole } from "./elements.js";

const COLUMNS = [
  [null, "table"], ["table_rows", "rows, about", true], ["table_size", "size", true], ["table_fresh", "complete up to"],
  ["table_fresh", "behind", true], ["table_last", "last batch", true], ["table_counts", "events", true],
  ["table_counts", "late", true], ["table_counts", "revised", true],
];

export async function showTables(view, name) {
  const found = await ask(of(name, "tables"));
  view.replaceChildren(
    el("h1", {}, `Tables of ${name}`),
    found.length ? table(COLUMNS, found.map(row)) : empty("The pipeline has no output."),
  );
}

function row(one) {
  return [
    el("div", {}, one.table, el("div", { class: "quiet" }, `${one.kind} in ${one.databases.join(", ")}`)),
    whole(one.rows_estimated), size(one.bytes), el("span", { class: "nowrap" }, moment(one.watermark)), seconds(one.behind_s),
    el("span", {}, whole(one.last_sequence), el("div", { class: "quiet nowrap" }, moment(one.published_at))),
    whole(one.events), whole(one.late), whole(one.revised),
  ];
}

function size(bytes) {
  if (bytes === null) return "–";
  const steps = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  let left = bytes;
  while (left >= 1000 && at < steps.length - 1) {
    left /= 1000;
    at += 1;
  }
  return `${left < 10 && at ? left.toFixed(1) : Math.round(left)} ${steps[at]}`;
}
