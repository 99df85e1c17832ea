// Fields of documents that the pipeline's file does not name. A document may have values
// for names, so the names are for who may see what records hold.

import { askAsKnown, wordsNeedToken } from "./access.js";
import { el, empty, moment, of, table, whole } from "./elements.js";

export async function showUnnamed(place, name) {
  try {
    const found = await askAsKnown(of(name, "unnamed-fields"));
    if (found.length) place.replaceChildren(el("h2", {}, "Fields that nobody named"), wordsNeedToken(), list(found));
  } catch (error) {
    place.replaceChildren(empty(error.message));
  }
}

const list = (found) => table(
  [[null, "field"], ["unnamed", "records", true], ["unnamed", "since"], [null, "to read it, add to fields"]],
  found.map((one) => [one.path ?? "–", whole(one.records), moment(one.since), one.line ? el("code", {}, one.line) : "–"]));
