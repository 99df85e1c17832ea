// One pipeline: where it stands, its job graph, and its last half hour.

import { showBottleneck } from "./bottleneck.js";
import { ask, el, formula, of, whole } from "./elements.js";
import { jobGraph } from "./job_graph.js";
import { partsAndState } from "./parts.js";
import { figures } from "./overview.js";
import { showProfiles } from "./profiles.js";
import { showSamples } from "./samples.js";
import { showTrends } from "./trends.js";
import { showUnnamed } from "./unnamed.js";

const NEWEST = 100;

// The charts add up half an hour. They are asked for last, so that nothing waits.
export async function showPipeline(view, name, look) {
  const graph = await ask(of(name, `graph?newest=${NEWEST}`));
  const charted = el("div", { class: "awaited" });
  const sampled = el("div", { id: "samples" });
  const profiled = el("div", {});
  const unnamed = el("div", { id: "unnamed" });
  view.replaceChildren(
    el("h1", {}, name),
    el("div", { id: "figures" }),
    el("div", { id: "bottleneck", "aria-live": "polite" }),
    el("h2", {}, graph.batches ? `The last ${whole(graph.batches)} batches` : "Job graph"),
    jobGraph(graph),
    law(graph),
    partsAndState(graph),
    unnamed,
    el("h2", {}, "The last half hour"),
    charted,
    el("h2", {}, formula("sample", "Samples")),
    sampled,
    el("h2", {}, "Profiles"),
    profiled,
  );
  showFigures(view, name, look);
  showTrends(charted, name);
  showSamples(sampled, name, graph.samples);
  showProfiles(profiled, name);
  showUnnamed(unnamed, name);
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
