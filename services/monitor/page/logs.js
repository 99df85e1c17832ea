// The newest warnings and errors of a pipeline's drivers, of all batches or of one.

import { askAsKnown, wordsNeedToken } from "./access.js";
import { el, empty, moment, of, table, whole } from "./elements.js";

const LINES = 100;

export async function showLogs(view, name, batch, before) {
  const asked = new URLSearchParams({ limit: LINES, ...(batch ? { batch } : {}), ...(before ? { before } : {}) });
  const found = await askAsKnown(of(name, `logs?${asked}`));
  const here = `#/${encodeURIComponent(name)}/logs`;
  view.replaceChildren(
    el("h1", {}, batch ? `Warnings and errors about batch ${whole(Number(batch))} of ${name}` : `Warnings and errors of ${name}`),
    batch ? el("p", {}, el("a", { href: here }, "Those of all batches")) : "",
    found.length ? wordsNeedToken() : "",
    found.length
      ? table(
          [[null, "when"], [null, "level"], ["log_batch", "batch", true], [null, "what"], [null, "beside"]],
          found.map((one) => [
            el("span", { class: "nowrap" }, moment(one.at)), el("span", { class: `log-${one.level}` }, one.level),
            el("a", { href: `${here}/${one.sequence}` }, whole(one.sequence)), one.event,
            el("div", {}, Object.entries(one.detail).map(([key, value]) =>
              el("div", {}, el("span", { class: "quiet" }, `${key} `), String(value)))),
          ]),
        )
      : empty("No log lines. A driver writes other messages to its standard error."),
    found.length === LINES
      ? el("a", { class: "more", href: `${here}/${batch ?? ""}/${found.at(-1).number}` }, "Older lines")
      : "",
  );
}
