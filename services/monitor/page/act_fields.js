// The fields of an act, by their kinds: an element, and its value as text.

import { el } from "./elements.js";

const KINDS = {
  text: () => ({ type: "text", maxlength: 500 }),
  number: () => ({ type: "number", min: 0, step: 1 }),
  moment: () => ({ type: "datetime-local", step: 1 }),
  boolean: () => ({ type: "checkbox" }),
};

export function fieldOf(field) {
  const id = `act-${field.name}`;
  const common = {
    id, name: field.name, required: field.is_required && field.kind !== "boolean",
    "aria-describedby": field.hint ? `${id}-hint` : null,
  };
  const input = field.kind === "choice"
    ? el("select", common, el("option", { value: "" }, "…"), field.choices.map(([value, label]) => el("option", { value }, label)))
    : el("input", { ...common, ...KINDS[field.kind](), autocomplete: "off" });
  const label = el("label", { for: id }, field.label);
  const hint = field.hint ? el("small", { id: `${id}-hint`, class: "quiet" }, field.hint) : null;
  return {
    name: field.name,
    shown: el("p", {}, ...(field.kind === "boolean" ? [input, " ", label] : [label, input]), hint),
    value: () => {
      if (field.kind === "boolean") return input.checked ? "true" : "";
      // The page tells all times in UTC.
      return field.kind === "moment" && input.value ? `${input.value}Z` : input.value;
    },
  };
}
