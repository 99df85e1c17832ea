// What can be done to a pipeline, beside what it is about, and what was done.

import { askAs, currentAccess } from "./access.js";
import { actButton } from "./acts.js";
import { ask, el, empty, moment, of, seconds, table, whole } from "./elements.js";
import { percent, size } from "./parts.js";

const ACTS = 50;

export async function showSteering(view, name) {
  const found = await ask(of(name, "steering"));
  const again = () => showSteering(view, name);
  const act = (kind, given, title) => actButton(kind, name, given, title, again);
  const discard = (fork) => actButton("discard", fork, {}, undefined, again);
  view.replaceChildren(
    el("h1", {}, `Steering of ${name}`),
    section("Offsets", [act("offsets-reset", {})], later(of(name, "offsets"), offsets)),
    section("Snapshots", [act("snapshot-take", {})], snapshots(found.snapshots, act)),
    section("Versions", [], later(of(name, "versions"), (all) => versions(all, act))),
    section("Forks", [act("fork", {})], forks(found.forks, name, act, discard)),
    section("Scaling", [act("scale", {})], el("p", {}, `${name}: ${found.bounds}.`), decisions(found.decisions)),
    section("Acts", [act("erase", {})], acts(name)),
  );
}

function section(title, buttons, ...content) {
  return el("section", { "aria-label": title },
    el("div", { class: "headed" }, el("h2", {}, title), ...buttons), ...content);
}

// Kafka, or a plan of many versions, may take a while; the rest does not wait for it.
function later(path, draw) {
  const place = el("div", {}, empty("…"));
  ask(path).then((found) => place.replaceChildren(draw(found)), (error) => place.replaceChildren(empty(error.message)));
  return place;
}

function offsets(found) {
  return table(
    [[null, "partition"], ["next_offset", "next", true], ["next_offset", "its record's time"], ["kafka_log", "log", true], ["lag", "lag", true], ["partition_headroom", "headroom", true]],
    found.map((one) => [
      `${one.topic}[${one.partition}]`, whole(one.next_offset), el("span", { class: "nowrap" }, moment(one.next_time)),
      one.log_start === null ? "gone" : `${whole(one.log_start)} … ${whole(one.log_end)}`, whole(one.lag), seconds(one.headroom_s),
    ]));
}

function snapshots(found, act) {
  if (!found.length) return empty("No snapshots.");
  return table(
    [[null, "name"], ["batch", "batch", true], ["watermark", "watermark"], [null, "taken"], [null, "by"], ["snapshot_size", "size", true], [null, "reason"], [null, ""]],
    found.map((one) => [
      one.name, whole(one.sequence), time(one.watermark), time(one.taken_at), one.taken_by, size(one.bytes), one.reason,
      both(act("restore", { name: one.name }), act("snapshot-drop", { name: one.name })),
    ]));
}

function versions(found, act) {
  if (!found.length) return empty("No driver has started yet.");
  return table(
    [[null, "version"], ["batch", "after batch", true], [null, "since"], [null, "by"], [null, "reason"], ["verdict", "back to it"], [null, ""]],
    found.map((one) => [
      one.is_in_force ? `${one.version}, in force` : String(one.version), whole(one.from_sequence), time(one.made_at), one.made_by, one.reason,
      one.verdict || one.why ? el("div", {}, one.verdict, one.why ? el("div", { class: "quiet" }, one.why) : null) : null,
      one.is_in_force || one.verdict === "incompatible" ? null : act("rollback", { version: String(one.version) }),
    ]));
}

function forks(found, name, act, discard) {
  if (!found.length) return empty("No forks.");
  const compared = el("div", { "aria-live": "polite" });
  const compare = (fork) => (currentAccess().name
    ? el("button", { type: "button", class: "act", onclick: () => showDiff(compared, name, fork) }, "Compare") : null);
  return el("div", {}, table(
    [[null, "fork"], [null, "its tables"], ["batch", "last batch", true], ["behind", "behind", true], [null, ""]],
    found.map((one) => [
      el("a", { href: `#/${encodeURIComponent(one.pipeline)}` }, one.pipeline),
      el("div", {}, one.tables.map(([front, shadow]) => el("div", {}, `${front} → ${shadow}`))),
      whole(one.last_sequence), whole(one.behind),
      both(compare(one.pipeline), act("switch", { fork: one.pipeline }), discard(one.pipeline)),
    ])), compared);
}

async function showDiff(place, name, fork) {
  place.replaceChildren(empty(`Comparing ${name} with ${fork} …`));
  try {
    const found = await askAs(of(name, `diff/${encodeURIComponent(fork)}`));
    place.replaceChildren(
      table(
        [[null, "table"], ["diff", "equal", true], ["diff", "different", true], ["diff", `only in ${name}`, true], ["diff", `only in ${fork}`, true], [null, "note"]],
        found.map((one) => [one.table, ...[one.equal, one.different, one.only_front, one.only_shadow].map(whole), one.note])),
      ...found.flatMap((one) => one.samples.map((sample) => el("pre", {},
        `${one.table} ${JSON.stringify(sample.key)}: ${JSON.stringify(sample.front)} → ${JSON.stringify(sample.shadow)}`))));
  } catch (error) {
    place.replaceChildren(empty(error.message));
  }
}

function decisions(found) {
  if (!found.length) return empty("Nothing was decided yet.");
  const change = (before, after) =>
    after === null ? "–" : before === null || before === after ? whole(after) : `${whole(before)} → ${whole(after)}`;
  return table(
    [[null, "decided"], [null, "reason"], ["decision", "executors", true], ["decision", "there", true], ["decision", "wanted", true], ["decision", "batch", true], ["decision", "backlog", true],
      ["decision", "in seconds", true], ["decision", "rate", true], ["decision", "arriving", true], ["decision", "expected", true], ["decision", "busy", true], ["decision", "tasks", true],
      ["decision", "connections", true]],
    found.map((one) => [
      time(one.decided_at), el("div", { class: "wide" }, el("strong", {}, one.because), ` ${one.reason}`), change(one.executors_before, one.executors), whole(one.executors_there), whole(one.executors_wanted),
      change(one.batch_offsets_before, one.batch_offsets), whole(one.backlog), seconds(one.backlog_s), whole(one.rate),
      whole(one.arrival_rate), whole(one.expected_rate), one.busy === null ? null : percent(one.busy), whole(one.tasks_max), whole(one.connections_max),
    ]));
}

function acts(name) {
  const place = el("div", {}, empty("…"));
  const all = [];
  const more = async () => {
    const last = all.at(-1);
    const found = await ask(of(name, `acts?limit=${ACTS}${last ? `&before=${last.epoch}` : ""}`));
    all.push(...found);
    place.replaceChildren(
      all.length ? table(
        [["act", "act"], [null, "done"], [null, "by"], ["batch", "after batch", true], [null, "reason"], ["act", "what"]],
        all.map((one) => [
          one.kind, time(one.done_at), one.done_by, whole(one.after_sequence), one.reason,
          el("span", { class: "quiet" }, one.resumed_at ? `until ${moment(one.resumed_at)}, by ${one.resumed_by}` : told(one.detail)),
        ])) : empty("No acts yet."),
      found.length === ACTS ? el("button", { type: "button", class: "more", onclick: more }, "Older acts") : "");
  };
  more().catch((error) => place.replaceChildren(empty(error.message)));
  return place;
}

function told(value) {
  if (Array.isArray(value)) return value.map(told).filter(Boolean).join("; ");
  if (value === null || typeof value !== "object") return value === null ? "" : String(value);
  return Object.entries(value).map(([name, one]) => [name.replaceAll("_", " "), told(one)])
    .filter(([, one]) => one).map((pair) => pair.join(" ")).join(", ");
}

const time = (text) => el("span", { class: "nowrap" }, moment(text));
const both = (...buttons) => el("div", { class: "row" }, ...buttons);
