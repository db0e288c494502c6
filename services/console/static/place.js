// Where the reader is: view, moment, node, pod, in the address, so that a link holds the view.

const listeners = [];

export function here() {
  const [view, query] = location.hash.slice(1).split("?");
  return { view: view || "map", ...Object.fromEntries(new URLSearchParams(query || "")) };
}

export function go(changes, { replace = false } = {}) {
  const next = { ...here(), ...changes };
  const view = next.view;
  delete next.view;
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(next)) if (value) query.set(name, value);
  const text = query.toString();
  const hash = `#${view}${text ? `?${text}` : ""}`;
  if (hash === location.hash) return;
  if (replace) {
    history.replaceState(null, "", hash);
    listeners.forEach((listener) => listener());
  } else {
    location.hash = hash;
  }
}

export function onMove(listener) {
  listeners.push(listener);
  window.addEventListener("hashchange", listener);
}
