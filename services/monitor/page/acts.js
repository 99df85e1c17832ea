// Acts: what is asked for, what it would do, and only then the button that does it.

import { askAs, currentAccess } from "./access.js";
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
  // What is drawn anew every two seconds must not take the keyboard's place away.
  if (place.dataset.told === told) return;
  place.dataset.told = told;
  place.replaceChildren(...fitting.map((act) => button(act, name, {})));
}

// The button of one act; null for who may not act.
export function actButton(actName, pipeline, fixed, title, done) {
  const act = currentAccess().acts.find((one) => one.name === actName);
  return act ? button({ ...act, title: title ?? act.title }, pipeline, fixed, done) : null;
}

function button(act, pipeline, fixed, done) {
  return el("button", { type: "button", class: "act", onclick: () => open(act, pipeline, fixed, done) }, act.title);
}

function open(act, pipeline, fixed, done = () => {}) {
  const inputs = act.fields.map((field) =>
    el("input", { id: `act-${field.name}`, name: field.name, required: true, maxlength: 500, autocomplete: "off" }));
  const told = el("div", { class: "told", role: "status" });
  const confirm = el("button", { type: "button", disabled: true, onclick: () => run(false) }, act.title);
  const close = el("button", { type: "button", onclick: () => box.close() }, "Cancel");
  const what = Object.values(fixed).filter(Boolean).join(" ");
  const form = el("form", {},
    act.fields.map((field, at) => el("p", {}, el("label", { for: `act-${field.name}` }, field.label), inputs[at])),
    el("p", {}, el("button", {}, "Show what it would do")));
  const box = el("dialog", { class: "act", "aria-label": act.title },
    el("h2", {}, `${act.title}: ${pipeline} ${what}`), form, told, el("p", { class: "ends" }, confirm, close));

  async function run(isDry) {
    confirm.disabled = true;
    const typed = Object.fromEntries(inputs.map((input) => [input.name, input.value]));
    try {
      const found = await askAs(of(pipeline, `acts/${act.name}`),
        { body: { arguments: { ...fixed, ...typed }, dry_run: isDry } });
      told.replaceChildren(...found.told.map((line) => el("p", {}, line)));
      if (isDry) {
        confirm.disabled = false;
        confirm.focus();
        return;
      }
      form.remove();
      confirm.remove();
      close.textContent = "Close";
      close.focus();
      done();
    } catch (error) {
      told.replaceChildren(el("p", { class: "wrong" }, error.code ? `${error.code}: ` : "", error.message), el("p", {}, error.fix ?? ""));
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
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  if (!inputs.length) run(true);
}
