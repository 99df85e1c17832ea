// What each part of a batch takes, as a table that can be sorted, and the size of state.

import { el, formula, seconds, table, whole } from "./elements.js";

const COLUMNS = [
  ["part", "part", (one) => one.step, (one) => one.step.replaceAll("_", " ")],
  ["part_rate", "rows/s", (one) => one.rows_per_s, (one) => whole(one.rows_per_s)],
  ["part_time", "median", (one) => one.p50_s, (one) => precise(one.p50_s)],
  ["part_time", "95 %", (one) => one.p95_s, (one) => precise(one.p95_s)],
  ["part_share", "share", (one) => one.share, (one) => percent(one.share)],
  ["part_cpu", "CPU", (one) => one.cpu_s, (one) => precise(one.cpu_s)],
  ["part_bytes", "size", (one) => one.bytes, (one) => size(one.bytes)],
];

export const percent = (share) => `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

export const precise = (value) =>
  value !== null && value !== undefined && value < 0.1 ? `${(value * 1000).toFixed(1)} ms` : seconds(value);

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  if (bytes < 1e6) return `${whole(bytes / 1e3)} kB`;
  return bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}

export function partsAndState({ parts, state, custom, hot_keys: hotKeys }) {
  const reported = Object.keys(custom.counts).length + Object.keys(custom.distributions).length;
  return el("div", {},
    parts.length ? partsTable(parts) : null, state.length ? stateTable(state) : null,
    hotKeys.length ? hotKeysTable(hotKeys) : null, reported ? customTable(custom) : null);
}

function hotKeysTable(hotKeys) {
  return el("div", {}, el("h2", {}, "Hot keys"),
    table([[null, "output"], ["hot_key", "key"], ["hot_key", "events", true], ["hot_key", "share", true]],
      hotKeys.map((one) => [one.output, one.key, whole(one.events), percent(one.share)])));
}

function customTable({ counts, distributions }) {
  const plain = (value) => (value === null ? "–" : value.toLocaleString("en", { maximumSignificantDigits: 4 }));
  return el("div", {}, el("h2", {}, "Reported by the pipeline"),
    table([[null, "name"], ["custom", "count", true], ["custom", "sum", true], ["custom", "median", true],
      ["custom", "95 %", true], ["custom", "greatest", true]],
    [
      ...Object.entries(counts).map(([name, amount]) => [name, whole(amount), "–", "–", "–", "–"]),
      ...Object.entries(distributions).map(([name, one]) =>
        [name, whole(one.count), ...[one.total, one.p50, one.p95, one.greatest].map(plain)]),
    ]));
}

function partsTable(parts) {
  const place = el("div", {});
  const show = (by, isDown) => {
    const [, , value] = COLUMNS[by] ?? [];
    const order = value ? parts.toSorted((a, b) => compare(value(a), value(b)) * (isDown ? -1 : 1)) : parts;
    place.replaceChildren(
      table(COLUMNS.map(([key, heading], at) => [key, heading, at > 0]),
        order.map((one) => COLUMNS.map(([, , , shown]) => shown(one)))),
    );
    place.querySelectorAll("th").forEach((heading, at) => {
      const isSorted = at === by;
      if (isSorted) heading.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      heading.append(el("button", {
        class: "sort", type: "button", "aria-label": `Sort by ${COLUMNS[at][1]}`,
        onclick: () => {
          show(at, isSorted ? !isDown : at > 0);
          place.querySelectorAll("th .sort")[at].focus();
        },
      }, isSorted ? (isDown ? "▾" : "▴") : "▹"));
    });
  };
  show(-1, false);
  return el("details", { class: "parts" },
    el("summary", {}, el("h2", {}, "Parts of a batch")), place);
}

function stateTable(state) {
  return el("div", {}, el("h2", {}, "State"),
    table([[null, "state"], ["state_rows", "rows", true], ["state_bytes", "size", true]],
      state.map((one) => [
        one.is_shared ? `${one.name} (of all pipelines)` : one.name, whole(one.rows), size(one.bytes),
      ])));
}

function compare(a, b) {
  if (typeof a === "string") return a.localeCompare(b);
  return (a ?? -1) - (b ?? -1);
}
