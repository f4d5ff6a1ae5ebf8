// Live refresh, and what takes a model seconds. Everything can be read without this file.
"use strict";
(() => {
  const parse = (text) => new DOMParser().parseFromString(text, "text/html");

  // Sections that a model has to be asked for.
  const load = async (section, tries) => {
    const response = await fetch(section.dataset.load, { headers: { "X-Fragment": "1" } });
    if (response.status === 202 || response.status === 503) {
      if (tries < 60) setTimeout(() => load(section, tries + 1), 700);
      return;
    }
    if (!response.ok) return;
    const found = parse(await response.text()).querySelector(".loaded");
    if (found) section.replaceChildren(...found.childNodes);
  };
  document.querySelectorAll("[data-load]").forEach((one) => load(one, 0).catch(() => {}));

  // Parts that are replaced when there is news.
  const parts = () => [...document.querySelectorAll("[data-live]")];
  if (!parts().length || !window.EventSource) return;
  const sign = document.querySelector(".live");
  let version = null, running = false, again = false;

  const refresh = async () => {
    if (running) { again = true; return; }
    running = true;
    try {
      const response = await fetch(location.href, { headers: { "X-Refresh": "1" } });
      if (response.status === 200) replace(parse(await response.text()));
    } catch { /* the daemon is away: the stream asks again by itself */ }
    running = false;
    if (again) { again = false; setTimeout(refresh, 300); }
  };
  const replace = (page) => {
    for (const old of parts()) {
      const fresh = page.getElementById(old.id);
      if (!fresh || fresh.innerHTML === old.innerHTML) continue;
      if (old.contains(document.activeElement) && document.activeElement.matches("input, select")) continue;
      const at = [...old.querySelectorAll("a, button, summary, [tabindex]")].indexOf(document.activeElement);
      const open = [...old.querySelectorAll("details")].map((one) => one.open);
      old.replaceWith(fresh);
      fresh.querySelectorAll("details").forEach((one, i) => { if (open[i]) one.open = true; });
      if (at >= 0) fresh.querySelectorAll("a, button, summary, [tabindex]")[at]?.focus({ preventScroll: true });
    }
  };
  const listen = () => {
    const events = new EventSource("/events");
    events.onopen = () => { sign.hidden = false; };
    events.onerror = () => { sign.hidden = true; };
    events.onmessage = (message) => {
      if (version !== null && version !== message.data) refresh();
      version = message.data;
    };
    window.addEventListener("pagehide", () => events.close());
  };
  listen();
})();
