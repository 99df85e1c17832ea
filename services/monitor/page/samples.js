// The newest rows of each step, for who may see what records hold.

import { askAs, currentAccess } from "./access.js";
import { el, empty, moment, of, table, whole } from "./elements.js";

export async function showSamples(place, name, kept) {
  if (!kept) {
    place.replaceChildren(empty("The pipeline keeps no samples. To keep them, add to the pipeline file: ", el("code", {}, "monitor: {samples: 5}")));
    return;
  }
  if (!currentAccess().name) {
    place.replaceChildren(empty("The rows of each step are shown to who enters a token."));
    return;
  }
  try {
    const { steps } = await askAs(of(name, "samples"));
    place.replaceChildren(...(steps.length ? steps.map(ofStep) : [empty("No row has passed yet.")]));
  } catch (error) {
    place.replaceChildren(empty(error.message));
  }
}

const quiet = (text) => el("span", { class: "quiet" }, text);

function ofStep(one) {
  const names = [...new Set(one.rows.flatMap((row) => row.fields.map(([field]) => field)))];
  const isPlaced = one.rows.some((row) => row.topic !== null);
  const hasReason = one.rows.some((row) => row.reason !== null);
  const columns = [...(isPlaced ? ["record"] : []), ...(hasReason ? ["reason"] : []), ...names, ...one.redacted];
  return el("details", { class: "parts" },
    el("summary", {},
      el("h3", {}, one.output === null ? one.step : `${one.step} ${one.output}`),
      quiet(` ${whole(one.rows.length)} rows of batch ${whole(one.batch)}, ${moment(one.published_at)}`)),
    table(columns.map((column) => [null, column]), one.rows.map((row) => {
      const values = new Map(row.fields);
      return [
        ...(isPlaced ? [el("span", { class: "nowrap" }, `${row.topic}[${row.partition}] ${whole(row.offset)}`)] : []),
        ...(hasReason ? [row.reason] : []),
        ...names.map((column) => (values.has(column) ? values.get(column) ?? quiet("null") : row.left_out ? quiet("left out") : null)),
        ...one.redacted.map(() => quiet("redacted")),
      ];
    })));
}
