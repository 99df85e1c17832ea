// Dead letters by reason, then one by one, without what the records hold.

import { ask, el, empty, moment, of, table, whole } from "./elements.js";

export async function showReasons(view, name) {
  const groups = await ask(of(name, "dead-letters"));
  view.replaceChildren(
    el("h1", {}, `Dead letters of ${name}`),
    groups.length
      ? table(
          [[null, "reason"], ["letters", "letters", true], [null, "oldest"], [null, "newest"], ["batch", "last batch", true], [null, "one of them"]],
          groups.map((one) => [
            el("a", { href: `#/${encodeURIComponent(name)}/dead-letters/${encodeURIComponent(one.reason)}` }, one.reason),
            whole(one.letters), moment(one.first_at), moment(one.last_at), whole(one.last_sequence), one.last_detail,
          ]),
        )
      : empty("No dead letter: every record became a result, or is counted elsewhere."),
  );
}

export async function showLetters(view, name, reason, skipped = 0) {
  const letters = await ask(of(name, `dead-letters/${encodeURIComponent(reason)}?skipped=${skipped}`));
  view.replaceChildren(
    el("h1", {}, `${reason} of ${name}`),
    letters.length
      ? table(
          [[null, "record"], ["batch", "batch", true], [null, "Kafka's time"], [null, "ID"], [null, "detail"], [null, "bytes", true]],
          letters.map((one) => [
            el("span", { class: "nowrap" }, `${one.topic}[${one.partition}] ${whole(one.offset)}`), whole(one.sequence),
            el("span", { class: "nowrap" }, moment(one.kafka_timestamp)),
            one.event_id === null ? null
              : el("a", { href: `#/${encodeURIComponent(name)}/why/${encodeURIComponent(one.event_id)}` }, one.event_id),
            one.detail, whole(one.payload_bytes),
          ]),
        )
      : empty("There are no more."),
    letters.length === 50
      ? el("a", { class: "more", href: `#/${encodeURIComponent(name)}/dead-letters/${encodeURIComponent(reason)}/${skipped + 50}` }, "Older letters")
      : null,
  );
}
