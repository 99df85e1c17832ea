// Flame graphs of a pipeline. They are shown as pictures, in which nothing runs; opened by
// themselves they tell each frame's name and share.

import { ask, el, empty, moment, of, whole } from "./elements.js";

export async function showProfiles(place, name) {
  try {
    const kept = await ask(of(name, "profiles"));
    place.replaceChildren(...(kept.length
      ? [...newest(kept).map((one) => picture(name, one)), list(name, kept)]
      : [empty("No profiles yet. On the driver's host, run: ", el("code", {}, `tallyweir profile ${name}`))]));
  } catch (error) {
    place.replaceChildren(empty(error.message));
  }
}

const at = (name, one) => of(name, `profiles/${one.profile_id}.svg`);
const newest = (kept) => ["python", "jvm"].flatMap((kind) => kept.find((one) => one.kind === kind) ?? []);

function picture(name, one) {
  const told = `Flame graph of its ${one.kind === "jvm" ? "JVM" : "Python"}, ${one.seconds} s at ${moment(one.taken_at)}`;
  return el("figure", { class: "profile" },
    el("a", { href: at(name, one) }, el("img", { src: at(name, one), alt: told, loading: "lazy" })));
}

function list(name, kept) {
  return el("ul", { class: "profiles" }, kept.map((one) => el("li", {},
    el("a", { href: at(name, one) }, `${one.kind}, ${moment(one.taken_at)}`),
    ` ${whole(one.samples)} samples of ${one.seconds} s, epoch ${one.epoch} on ${one.host}, by ${one.taken_by}`)));
}
