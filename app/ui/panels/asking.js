// Settings dropped on the page or contained in its address go to the tab of their kind, which may not have been opened yet.
// They wait in sessionStorage until that tab's table of runs takes them.
const ASKED = "foretoken-asked-";
const tabsOf = () => [...document.querySelectorAll("#tabs [role=tab]")];
const openKind = () => tabsOf().find((tab) => tab.getAttribute("aria-selected") === "true")?.textContent.trim().toLowerCase();
const kindOf = (settings) => (settings.input ? "mesh" : typeof settings.method === "string" || openKind() !== "mesh" ? "image" : "mesh");

function askFor(settings) {
  const kind = kindOf(settings);
  sessionStorage.setItem(ASKED + kind, JSON.stringify(settings));
  tabsOf().find((tab) => tab.textContent.trim().toLowerCase() === kind && openKind() !== kind)?.click();
  emit("asked");
}

function takeSettings(kind) { // and removes them
  const text = sessionStorage.getItem(ASKED + kind);
  sessionStorage.removeItem(ASKED + kind);
  return text && JSON.parse(text);
}

// Bytes as base64 without characters that have a meaning in an address, and back.
const urlText = (own) => btoa(String.fromCharCode(...own)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const urlBytes = (text) => bytes(text.replaceAll("-", "+").replaceAll("_", "/"));

function takeLink() { // true if the page's address contains settings
  const parts = new URLSearchParams(location.search);
  if (!parts.get("run")) return false;
  history.replaceState(null, "", location.pathname);
  try {
    const tokens = parts.get("tokens") && [...new Uint16Array(urlBytes(parts.get("tokens")).buffer)];
    const at = parts.has("at") ? Number(parts.get("at")) : null;
    askFor({ ...JSON.parse(new TextDecoder().decode(urlBytes(parts.get("run")))), linked: true, tokens, at });
  } catch {
    askFor({}); // the server reports the error
  }
  return true;
}

function whenThere(selector, act) { // once the page has the element; "" = immediately
  if (!selector || document.querySelector(selector)) return act();
  const watcher = new MutationObserver(() => {
    if (!document.querySelector(selector)) return;
    watcher.disconnect();
    act();
  });
  watcher.observe(document.body, { childList: true, subtree: true });
}
