// The token of who may see payloads or act. It is kept for this tab only, and travels in
// a header, never in an address or a cookie.

import { ask, el } from "./elements.js";

const KEPT = "tallyweir-token";
let access = { name: null, role: null, acts: [] };

export const currentAccess = () => access;

// Some answers say more to who has entered a token.
export const askAsKnown = (path) => (access.name ? askAs(path) : ask(path));

export const wordsNeedToken = () =>
  access.name ? "" : el("p", { class: "quiet" }, "The words for what was seen may quote records, so they are shown to who enters a token.");

export async function askAs(path, { body } = {}) {
  const token = sessionStorage.getItem(KEPT);
  const answer = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers: {
      accept: "application/json",
      ...(token ? { authorization: `Bearer ${token}` } : {}),
      ...(body === undefined ? {} : { "content-type": "application/json", "x-tallyweir-act": "1" }),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.saw ?? answer.statusText), found);
  return found;
}

export async function listenForAccess(changed) {
  const place = el("span", { id: "access" });
  document.querySelector("header").append(place);
  const show = () => place.replaceChildren(
    access.name
      ? el("button", { type: "button", onclick: leave, title: access.role }, `${access.name}: leave`)
      : el("button", { type: "button", onclick: () => enter(take) }, "Enter token"));
  const take = async (token) => {
    const former = sessionStorage.getItem(KEPT);
    sessionStorage.setItem(KEPT, token);
    try {
      access = await askAs("api/access");
    } catch (error) {
      if (former) sessionStorage.setItem(KEPT, former);
      else sessionStorage.removeItem(KEPT);
      throw error;
    }
    show();
    changed();
  };
  function leave() {
    sessionStorage.removeItem(KEPT);
    access = { name: null, role: null, acts: [] };
    show();
    changed();
    place.querySelector("button").focus();
  }
  const kept = sessionStorage.getItem(KEPT);
  const { has_tokens: hasTokens } = kept ? { has_tokens: true } : await askAs("api/access");
  // Without a file of tokens nobody has one.
  if (!hasTokens) return;
  show();
  if (kept) take(kept).catch(leave);
}

function enter(take) {
  const input = el("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const wrong = el("p", { class: "wrong", role: "alert" });
  const form = el("form", { class: "asks" },
    el("label", { for: "token" }, "Token"), input, el("button", {}, "Enter"),
    el("button", { type: "button", onclick: () => box.close() }, "Cancel"));
  const box = el("dialog", { class: "act", "aria-label": "Enter token" }, el("h2", {}, "Enter token"), form, wrong);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await take(input.value.trim());
      box.close();
    } catch (error) {
      wrong.textContent = `${error.message} ${error.fix ?? ""}`;
      input.select();
    }
  });
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}
