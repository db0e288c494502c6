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

// Rows are lists of texts or elements; `numbers` are the columns that hold numbers.
export function table(caption, columns, rows, numbers = []) {
  const cell = (tag, text, index, attributes = {}) =>
    element(tag, { ...attributes, class: numbers.includes(index) ? "number" : undefined }, text);
  return element(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element(
      "table",
      {},
      element("caption", {}, caption),
      element(
        "thead",
        {},
        element("tr", {}, ...columns.map((text, index) => cell("th", text, index, { scope: "col" }))),
      ),
      element(
        "tbody",
        {},
        ...rows.map((row) => element("tr", {}, ...row.map((text, index) => cell("td", text, index)))),
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

export function amount(resource, value) {
  if (resource === "cpu") return `${value / 1000}`;
  if (resource === "memory" || resource.startsWith("hugepages-")) {
    return value >= 2 ** 30 ? `${Math.round((value / 2 ** 30) * 10) / 10} Gi` : `${Math.round(value / 2 ** 20)} Mi`;
  }
  return `${value}`;
}
