// Questions to this server. A token, if the server asks for one, comes from the address
// (#token=...) once and stays in this tab.

const KEY = "topolog-token";

// The cell of the address (/console/?cell=b), "" for the first or only log.
export const cell = new URLSearchParams(location.search).get("cell") || "";

export function keepToken() {
  const match = /[#&]token=([^&]+)/.exec(location.hash);
  if (!match) return;
  sessionStorage.setItem(KEY, decodeURIComponent(match[1]));
  location.hash = location.hash.replace(match[0], "").replace(/^&/, "#") || "#map";
}

export async function ask(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== "" && value !== undefined && value !== null) query.set(name, value);
  }
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const base = cell ? `/cells/${encodeURIComponent(cell)}` : "";
  const response = await fetch(`${base}/api/v1${path}?${query}`, { headers });
  if (response.status === 401) {
    throw new Error("This server asks for a token. Open the console as /console/#token=TOKEN.");
  }
  const isPicture = (response.headers.get("Content-Type") || "").startsWith("image/");
  if (response.ok) return isPicture ? response.blob() : response.json();
  const body = await response.json().catch(() => ({ error: response.statusText }));
  throw new Error(body.remedy ? `${body.error}\nTry: ${body.remedy}` : body.error);
}
