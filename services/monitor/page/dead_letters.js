// Dead letters by reason, then one by one, without what the records hold; what was seen in
// them, which may quote it, is for who may see that.

import { askAsKnown, currentAccess, wordsNeedToken } from "./access.js";
import { actButton } from "./acts.js";
import { el, empty, moment, of, table, whole } from "./elements.js";

export async function showReasons(view, name) {
  const groups = await askAsKnown(of(name, "dead-letters"));
  const isKnown = currentAccess().name !== null;
  const again = () => showReasons(view, name);
  const all = groups.length ? actButton("redrive", name, {}, "Send all again", again) : null;
  const mayAct = all !== null;
  view.replaceChildren(
    el("h1", {}, `Dead letters of ${name}`),
    all ? el("div", { id: "acts" }, all) : "",
    groups.length ? wordsNeedToken() : "",
    groups.length
      ? table(
          [[null, "reason"], ["letters", "letters", true], ["redriven", "sent again", true], [null, "oldest"], [null, "newest"], ["batch", "last batch", true],
            ...(isKnown ? [[null, "one of them"]] : []),
            ...(mayAct ? [[null, ""]] : [])],
          groups.map((one) => [
            el("a", { href: `#/${encodeURIComponent(name)}/dead-letters/${encodeURIComponent(one.reason)}` }, one.reason),
            whole(one.letters), whole(one.redriven), moment(one.first_at), moment(one.last_at), whole(one.last_sequence),
            ...(isKnown ? [one.last_detail] : []),
            ...(mayAct ? [actButton("redrive", name, { group: one.reason }, "Send again", again)] : []),
          ]),
        )
      : empty("No dead letter: every record became a result, or is counted elsewhere."),
  );
}

export async function showLetters(view, name, reason, skipped = 0) {
  const letters = await askAsKnown(of(name, `dead-letters/${encodeURIComponent(reason)}?skipped=${skipped}`));
  const isKnown = currentAccess().name !== null;
  const here = `#/${encodeURIComponent(name)}`;
  view.replaceChildren(
    el("h1", {}, `${reason} of ${name}`),
    letters.length ? wordsNeedToken() : "",
    letters.length
      ? table(
          [[null, "record"], ["batch", "batch", true], [null, "Kafka's time"], [null, "ID"], ...(isKnown ? [[null, "detail"]] : []), [null, "bytes", true], [null, "sent again"]],
          letters.map((one) => [
            el("a", { class: "nowrap", href: `${here}/letter/${encodeURIComponent(one.topic)}/${one.partition}/${one.offset}` },
              `${one.topic}[${one.partition}] ${whole(one.offset)}`),
            whole(one.sequence),
            el("span", { class: "nowrap" }, moment(one.kafka_timestamp)),
            one.event_id === null ? null
              : el("a", { href: `${here}/why/${encodeURIComponent(one.event_id)}` }, one.event_id),
            ...(isKnown ? [one.detail] : []), whole(one.payload_bytes), sentAgain(one),
          ]),
        )
      : empty("There are no more."),
    letters.length === 50
      ? el("a", { class: "more", href: `${here}/dead-letters/${encodeURIComponent(reason)}/${skipped + 50}` }, "Older letters")
      : "",
  );
}

function sentAgain(one) {
  if (one.redriven_at === null) return null;
  return el("span", { class: "nowrap" },
    one.new_offset === null ? "perhaps" : `[${one.new_partition}] ${whole(one.new_offset)}`,
    el("div", { class: "quiet" }, moment(one.redriven_at)));
}
