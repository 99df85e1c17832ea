// Acts: what is asked for, what it would do, and only then the button that does it.

import { askAs, currentAccess } from "./access.js";
import { fieldOf } from "./act_fields.js";
import { el, of } from "./elements.js";

// The acts that fit the state of a pipeline, under its name.
export function showActs(view, name, look) {
  const one = look?.pipelines.find((other) => other.pipeline === name);
  const fitting = currentAccess().acts.filter((act) => one && act.states.includes(one.state));
  const told = fitting.map((act) => act.name).join(" ");
  let place = view.querySelector("#acts");
  if (!place) {
    if (!fitting.length) return;
    place = el("div", { id: "acts" });
    view.querySelector("h1")?.after(place);
  }
  // What is redrawn every two seconds must not take the keyboard's place away.
  if (place.dataset.told === told) return;
  place.dataset.told = told;
  place.replaceChildren(...fitting.map((act) => button(act, name, {})));
}

// The button of one act; null for who may not act. What the place gives is not asked for.
export function actButton(actName, pipeline, given, title, done) {
  const act = currentAccess().acts.find((one) => one.name === actName);
  return act ? button({ ...act, title: title ?? act.title }, pipeline, given, done) : null;
}

function button(act, pipeline, given, done) {
  return el("button", { type: "button", class: "act", onclick: () => open(act, pipeline, given, done) }, act.title);
}

function open(act, pipeline, given, done = () => {}) {
  const fields = act.fields.filter((one) => !one.is_fixed && !(one.name in given)).map(fieldOf);
  const name = [`${act.title}:`, pipeline, ...Object.values(given)].filter(Boolean).join(" ");
  const told = el("div", { class: "told", role: "status" });
  const confirm = el("button", { type: "button", disabled: true, onclick: () => run(false) }, act.title);
  const close = el("button", { type: "button", onclick: () => box.close() }, "Cancel");
  const form = el("form", {}, fields.map((one) => one.shown), el("p", {}, el("button", {}, "Show what it would do")));
  const box = el("dialog", { class: "act", "aria-label": act.title },
    el("h2", {}, name), form, told, el("p", { class: "ends" }, confirm, close));
  let isDoing = false;
  let endsElsewhere = null;

  async function run(isDry) {
    confirm.disabled = true;
    isDoing = !isDry;
    // What is shown will be of these words.
    form.inert = true;
    close.textContent = isDry ? "Cancel" : "Close";
    const stop = tick(told, isDry ? "" : "Closing this does not end it: the acts on the page Steering tell how it went.");
    const typed = Object.fromEntries(fields.map((one) => [one.name, one.value()]));
    try {
      const found = await askAs(of(pipeline, `acts/${act.name}`),
        { body: { arguments: { ...given, ...typed }, dry_run: isDry } });
      told.replaceChildren(...lines(found.told));
      if (isDry) {
        confirm.disabled = false;
        confirm.focus();
        return;
      }
      form.remove();
      confirm.remove();
      if (endsElsewhere) endsElsewhere(found.told);
      else close.focus();
      done();
    } catch (error) {
      const why = wrong(error, isDry);
      told.replaceChildren(el("p", { class: "wrong" }, why[0]), ...lines(why.slice(1)));
      endsElsewhere?.(why);
      form.inert = false;
      form.querySelector("input, select")?.focus();
    } finally {
      stop();
      isDoing = false;
      form.inert = false;
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(true);
  });
  // What is shown was for other words.
  form.addEventListener("input", () => {
    confirm.disabled = true;
    told.replaceChildren();
  });
  box.addEventListener("close", () => {
    box.remove();
    // What was confirmed goes on, and says so until it has ended.
    if (isDoing) endsElsewhere = stay(name);
    // The button that was pressed may have been redrawn meanwhile.
    if (document.activeElement === document.body) document.getElementById("view").focus({ preventScroll: true });
  });
  document.body.append(box);
  box.showModal();
  if (!fields.length) run(true);
}

function wrong(error, isDry) {
  if (error.code) return [`${error.code}: ${error.message}`, error.why, error.fix];
  return [isDry ? error.message : "The answer did not come. Whether it was done, the acts on the page Steering tell."];
}

const lines = (told) => told.filter(Boolean).map((line) => el("p", { class: line.startsWith("  ") ? "part" : null }, line.trim()));

// Tell from the second second on that something is at work; returns what ends that.
function tick(place, note) {
  const began = Date.now();
  const timer = setInterval(() => {
    place.replaceChildren(el("p", {}, `At work for ${Math.round((Date.now() - began) / 1000)} s.`), ...lines([note]));
  }, 1000);
  return () => clearInterval(timer);
}

// A line at the foot of the page for an act whose dialog was closed; returns what ends it.
function stay(name) {
  let place = document.getElementById("works");
  if (!place) {
    place = el("div", { id: "works", role: "status" });
    document.getElementById("troubles").before(place);
  }
  const line = el("p", {}, el("strong", {}, name), " is at work.");
  place.append(line);
  return (told) => line.replaceChildren(
    el("strong", {}, name), ` ${told.filter(Boolean).join(" ")} `,
    el("button", { type: "button", class: "act", onclick: () => line.remove() }, "Dismiss"));
}
