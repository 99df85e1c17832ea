// One pipeline: where it stands, its job graph, and its last half hour.

import { byCount, bySeconds, chart, slotsOf } from "./charts.js";
import { showBottleneck } from "./bottleneck.js";
import { ask, el, empty, formula, of, seconds, whole } from "./elements.js";
import { jobGraph } from "./job_graph.js";
import { partsAndState } from "./parts.js";
import { figures } from "./overview.js";
import { showProfiles } from "./profiles.js";
import { showSamples } from "./samples.js";

const NEWEST = 100;
const SLOT_S = 10;
const SLOTS = 180;

// The charts add up half an hour. They are asked for last, so that nothing waits.
export async function showPipeline(view, name, look) {
  const graph = await ask(of(name, `graph?newest=${NEWEST}`));
  const charted = el("div", { class: "awaited" });
  const sampled = el("div", { id: "samples" });
  const profiled = el("div", {});
  view.replaceChildren(
    el("h1", {}, name),
    el("div", { id: "figures" }),
    el("div", { id: "bottleneck", "aria-live": "polite" }),
    el("h2", {}, graph.batches ? `The last ${whole(graph.batches)} batches` : "Job graph"),
    jobGraph(graph),
    law(graph),
    partsAndState(graph),
    el("h2", {}, "The last half hour"),
    charted,
    el("h2", {}, formula("sample", "Samples")),
    sampled,
    el("h2", {}, "Profiles"),
    profiled,
  );
  showFigures(view, name, look);
  showCharts(charted, name);
  showSamples(sampled, name, graph.samples);
  showProfiles(profiled, name);
}

async function showCharts(place, name) {
  try {
    const history = await ask(of(name, `history?slot_s=${SLOT_S}&slots=${SLOTS}`));
    place.replaceChildren(history.length ? charts(history) : empty("Nothing was published in the last half hour."));
  } catch (error) {
    place.replaceChildren(empty(error.message));
  }
  place.classList.remove("awaited");
}

export function showFigures(view, name, look) {
  const one = look.pipelines.find((other) => other.pipeline === name);
  const place = view.querySelector("#figures");
  if (one && place) place.replaceChildren(figures(one));
  if (one) showBottleneck(view.querySelector("#bottleneck"), one);
}

function law({ counts, missing }) {
  const aside = ["committed", "duplicate", "dead", "late", "expired", "filtered"]
    .filter((name) => counts[name] || name === "committed")
    .map((name) => `${whole(counts[name])} ${name}`);
  return el("p", { class: "law" },
    missing === 0 ? el("span", { class: "holds" }, "✓ ") : el("span", { class: "broken" }, `✗ ${whole(missing)} missing: `),
    `${whole(counts.read)} read = ${aside.join(" + ")}`);
}

function charts(history) {
  const { began, of: values } = slotsOf(history, SLOT_S, SLOTS);
  return el("div", { class: "charts" },
    chart("events/s", began, [["read", values((slot) => slot.read / SLOT_S)]], byCount),
    chart("seconds from plan to publish", began,
      [["median", values((slot) => slot.batch_p50_s)], ["95 %", values((slot) => slot.batch_p95_s)]], bySeconds),
    chart(`in ${SLOT_S} s`, began,
      [["duplicate", values((slot) => slot.duplicate)], ["late", values((slot) => slot.late)], ["dead", values((slot) => slot.dead)]], byCount));
}
