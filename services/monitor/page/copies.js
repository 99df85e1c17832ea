// Every copy of an event with what its record holds, for who may see that.

import { askAs, currentAccess } from "./access.js";
import { el, empty, of, table, whole } from "./elements.js";
import { hex, readAsFar } from "./letter.js";

export async function showCopies(place, name, eventId) {
  if (!currentAccess().name) {
    place.replaceChildren(el("p", { class: "quiet" }, "What the records hold, and what was seen in them, is shown to who enters a token."));
    return;
  }
  try {
    const copies = await askAs(of(name, `copies?event_id=${encodeURIComponent(eventId)}`));
    place.replaceChildren(...copies.map(section));
  } catch (error) {
    place.replaceChildren(empty(error.message));
  }
}

function section(copy) {
  const { topic, partition, offset, fates, decoded, headers, contracts } = copy;
  const title = el("h2", {}, `${topic}[${partition}] ${whole(offset)}: ${fates.join(", ")}`);
  if (!copy.is_there)
    return el("section", {}, title, empty("Neither the home database nor Kafka has the record any more."));
  return el("section", {}, title,
    hex("payload", copy.payload_hex, copy.payload_bytes),
    ...(decoded ? readAsFar(decoded, fates.includes("dead")) : [empty(`Not decoded: ${contracts.join(", ")} is a file; start the monitor with --contracts FOLDER.`)]),
    copy.key_hex === null ? "" : hex("key", copy.key_hex),
    headers?.length ? table([[null, "header"], [null, "value"]], headers) : "");
}
