// What became of an event, copy by copy.

import { askAsKnown } from "./access.js";
import { actButton } from "./acts.js";
import { showCopies } from "./copies.js";
import { el, empty, of } from "./elements.js";

export async function showWhy(view, name, eventId = "") {
  const input = el("input", { id: "event-id", name: "id", required: true, maxlength: 200, value: eventId, autocomplete: "off", autofocus: !eventId });
  const form = el("form", { class: "asks" }, el("label", { for: "event-id" }, "Producer's ID"), input, el("button", {}, "Why?"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = `#/${encodeURIComponent(name)}/why/${encodeURIComponent(input.value)}`;
  });
  const answer = el("div", { "aria-live": "polite" });
  view.replaceChildren(el("h1", {}, `What became of an event of ${name}`), form, answer);
  if (!eventId) {
    answer.append(empty("Every copy of an event is told: which batch decided about it, and how."));
    return;
  }
  const { told, is_known: isKnown } = await askAsKnown(of(name, `why?event_id=${encodeURIComponent(eventId)}`));
  const copies = el("div", { id: "copies" });
  answer.append(el("div", { class: "told" }, told.map((sentence) => el("pre", {}, sentence))), copies);
  if (isKnown) showCopies(copies, name, eventId);
  const erase = actButton("erase", name, { id: eventId }, "Erase this event", () => showWhy(view, name, eventId));
  if (erase) answer.append(el("p", {}, erase));
}
