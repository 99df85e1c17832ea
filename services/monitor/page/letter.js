// One dead letter with what its record holds, for who may see that.

import { askAs, currentAccess } from "./access.js";
import { actButton } from "./acts.js";
import { el, empty, moment, of, table, whole } from "./elements.js";

export async function showLetter(view, name, topic, partition, offset) {
  const place = `${topic}/${partition}/${offset}`;
  const again = () => showLetter(view, name, topic, partition, offset);
  view.replaceChildren(el("h1", {}, `Dead letter ${place}`));
  if (!currentAccess().name) {
    view.append(empty("What a record holds is shown to who enters a token."));
    return;
  }
  const found = await askAs(of(name, `letters/${encodeURIComponent(topic)}/${partition}/${offset}`));
  const decoded = found.decoded;
  view.replaceChildren(
    el("h1", {}, `Dead letter ${place}`),
    el("p", {}, el("strong", {}, found.reason), ` ${found.detail}`),
    el("p", { class: "quiet" }, `batch ${whole(found.batch)}, Kafka's time ${moment(found.kafka_timestamp)}, ID ${found.event_id ?? "unreadable"}`),
    el("p", {}, actButton("redrive", name, { record: place }, "Send this one again", again) ?? ""),
    ...(found.redrives.length ? [el("h2", {}, "Sent again"), redrives(found.redrives)] : []),
    el("h2", {}, "Payload"),
    ...(decoded ? readAsFar(decoded) : [empty(`Not decoded: ${found.contracts.join(", ")} is a file; start the monitor with --contracts FOLDER.`)]),
    hex("payload", found.payload_hex, found.payload_bytes),
    el("h2", {}, "Key and headers"),
    hex("key", found.key_hex),
    found.headers === null
      ? empty("The headers are gone: the topic has the record no more.")
      : found.headers.length ? table([[null, "header"], [null, "value"]], found.headers) : empty("The record has no headers."),
  );
}

export function readAsFar(decoded, mayHelp = true) {
  const fields = decoded.fields.map((one) => [one.name, one.type, `${one.from_byte} … ${one.until_byte}`, one.value]);
  if (decoded.failed_field !== null)
    fields.push([el("span", { class: "broken" }, decoded.failed_field), "", `${decoded.failed_at} …`, el("span", { class: "broken" }, "fails")]);
  return [
    el("p", {}, `Schema id ${decoded.schema_id ?? "–"}, written by ${decoded.writer ?? "an unknown contract"}, read as ${decoded.readers.join(", ")}.`),
    el("p", {}, decoded.problem === null
      ? el("span", { class: "holds" }, mayHelp ? "It decodes today: sending it again may help." : "It decodes.")
      : el("span", { class: "broken" }, decoded.problem)),
    fields.length ? table([[null, "field"], [null, "type"], [null, "bytes"], [null, "value"]], fields) : "",
    ...(decoded.differences.length
      ? [el("h2", {}, "What its writer does otherwise"), el("ul", {}, decoded.differences.map((one) => el("li", {}, one)))]
      : []),
  ];
}

function redrives(found) {
  return table(
    [[null, "when"], [null, "by"], [null, "reason"], [null, "copy"]],
    found.map((one) => [
      moment(one.asked_at), one.asked_by, one.reason,
      one.new_offset === null ? "not known to be sent" : `[${one.new_partition}] ${whole(one.new_offset)}`,
    ]),
  );
}

export function hex(what, text, bytes) {
  if (text === null) return empty(`No ${what}.`);
  const pairs = text.replace(/^[0-9a-f]+/, (all) => all.match(/.{1,2}/g).join(" "));
  return el("pre", { class: "told", "aria-label": `${what} in hex` }, bytes === undefined ? pairs : `${whole(bytes)} bytes\n${pairs}`);
}
