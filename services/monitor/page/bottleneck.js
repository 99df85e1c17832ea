// What keeps a pipeline from being faster, in one line.

import { ask, el, formula, of } from "./elements.js";

const EVERY_MS = 4000;
let askedAt = 0;
let askedOf = null;

export async function showBottleneck(place, one) {
  if (!place) return;
  const isNew = !place.hasChildNodes() || askedOf !== one.pipeline;
  if (!isNew && Date.now() - askedAt < EVERY_MS) return;
  [askedAt, askedOf] = [Date.now(), one.pipeline];
  let found = null;
  try {
    found = await ask(of(one.pipeline, one.lag === null ? "bottleneck" : `bottleneck?lag=${one.lag}`));
  } catch {
    // The line of troubles says why nothing is known.
  }
  place.replaceChildren(found ? line(found) : el("p", { class: "quiet" }));
}

function line({ cause, share, saw, remedy, part, is_trouble }) {
  const name = cause === "step" ? part.replaceAll("_", " ") : cause;
  return el("p", { class: is_trouble ? "bottleneck amber" : "bottleneck quiet" },
    formula("bottleneck", "Bottleneck"), `: ${name}, ${Math.round(share * 100)} %. `,
    el("span", { class: "quiet" }, `${saw} ${remedy}`));
}
