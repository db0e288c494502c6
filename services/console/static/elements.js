// Elements from values. Texts are set as text, never as markup: names come from a cluster.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Rows are lists of texts or elements; `numbers` are the columns that hold numbers. A row of a
// `list` becomes a block on a phone; the roles keep it a table for screen readers.
export function table(caption, columns, rows, numbers = [], isList = false) {
  const role = (name) => (isList ? { role: name } : {});
  const isWord = (text) => !`${text.textContent ?? text}`.includes(" ");
  const cell = (tag, text, index, attributes = {}) =>
    element(tag, { ...attributes, class: numbers.includes(index) ? "number" : isWord(text) ? "word" : undefined }, text);
  return element(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element(
      "table",
      isList ? { class: "list", role: "table" } : {},
      element("caption", {}, caption),
      element(
        "thead",
        {},
        element("tr", role("row"), ...columns.map((text, index) => cell("th", text, index, { scope: "col", ...role("columnheader") }))),
      ),
      element(
        "tbody",
        {},
        ...rows.map((row) => element("tr", role("row"), ...row.map((text, index) => cell("td", text, index, role("cell"))))),
      ),
    ),
  );
}

export function field(label, input) {
  return element("label", {}, label, input);
}

export function choice(options, value, onchange) {
  const select = element("select", { onchange: () => onchange(select.value) });
  for (const [key, text] of options) {
    select.append(element("option", { value: key, selected: key === value }, text));
  }
  return select;
}

// An amount of a total, in the total's unit: "17.9 of 61.9 Gi".
export function share(resource, [least, most], total) {
  const [whole, unit = ""] = amount(resource, total).split(" ");
  const parts = [...new Set([least, most])].map((part) => amount(resource, part));
  const short = parts.map((part) => (unit && part.endsWith(` ${unit}`) ? part.slice(0, -unit.length - 1) : part));
  return `${short.join(" to ")} of ${whole}${unit && ` ${unit}`}`;
}

export function amount(resource, value) {
  if (resource === "cpu") return `${value / 1000}`;
  if (resource === "memory" || resource.startsWith("hugepages-")) {
    return value >= 2 ** 30 ? `${Math.round((value / 2 ** 30) * 10) / 10} Gi` : `${Math.round(value / 2 ** 20)} Mi`;
  }
  return `${value}`;
}
