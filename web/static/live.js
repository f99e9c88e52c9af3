// Asks for the page again every data-every seconds and replaces the parts that
// changed, the alarms above among them. It waits while somebody edits, drags,
// zooms, selects or has paused it, and while the page is hidden; it says so, and
// says when no answer comes or when the answer is that one has to sign in.
(() => {
  const pulse = document.querySelector(".pulse[data-every]"), main = document.querySelector("#main");
  if (!pulse) return;
  const every = () => pulse.dataset.every * 1e3, say = pulse.querySelector(".say-pulse"), pause = pulse.querySelector("[data-do=pause]"), again = pulse.querySelector("[data-do=again]");
  const parts = (of) => [...of.children], raw = (of) => parts(of).map((p) => p.outerHTML);
  let was = raw(main), refused = 0, zoomed = new URL(location).searchParams.has("to") && !!main.querySelector(".chart"), dragging = false, stopped = false, asking = false, at = performance.now(), tried = at;

  const tell = (text, is) => { if (say.textContent !== text) say.textContent = text; is ? pulse.dataset.is = is : delete pulse.dataset.is; };
  const waits = () => stopped ? "Paused. As of " : edited() ? "Waits while you edit. As of " : zoomed || dragging ? "Waits while the chart is zoomed. As of " : help() || getSelection()?.type === "Range" ? "Waits. As of " : "";
  const help = () => document.querySelector("dialog[open]");

  // Somebody edits while a field that was touched holds what the page did not
  // give it. What a what-if holds is in the address once it is answered.
  const touched = new Set();
  const changed = (el) => /checkbox|radio/.test(el.type) ? el.checked !== el.defaultChecked : el.options ? el.selectedIndex !== Math.max(0, [...el.options].findLastIndex((o) => o.defaultSelected)) : el.value !== el.defaultValue;
  const answered = (form) => form?.matches("[data-live]") && new URLSearchParams(new FormData(form)).toString() === location.search.slice(1);
  const edited = () => [...touched].some((el) => el.isConnected && changed(el) && !answered(el.form));
  main.addEventListener("input", (e) => { touched.add(e.target); });
  main.addEventListener("pointerdown", (e) => { dragging = !!e.target.closest(".plot, [type=range]"); });
  addEventListener("pointerup", () => { dragging = false; });
  document.addEventListener("rlc:zoom", (e) => { zoomed = e.detail; look(); });
  pause.hidden = false;
  pause.onclick = () => {
    stopped = !stopped;
    pause.setAttribute("aria-pressed", stopped);
    pause.textContent = stopped ? "Go on refreshing" : "Pause refreshing";
    look();
  };

  // Keeps what a person did to a part: the focus, the marked row, opened details.
  function swap(old, fresh) {
    const el = document.activeElement, held = old.contains(el) ? el.id ? `#${CSS.escape(el.id)}` : el.getAttribute("href") ? `[href="${CSS.escape(el.getAttribute("href"))}"]` : null : null;
    const row = old.querySelector("tr.at a")?.getAttribute("href"), open = [...old.querySelectorAll("details")].map((d) => d.open);
    fresh.querySelectorAll("details").forEach((d, i) => { d.open = open[i] ?? d.open; });
    old.replaceWith(fresh);
    if (row) fresh.querySelector(`tr a[href="${CSS.escape(row)}"]`)?.closest("tr").classList.add("at");
    if (held) fresh.querySelector(held)?.focus({ preventScroll: true });
    document.dispatchEvent(new CustomEvent("rlc:fresh", { detail: fresh }));
  }

  async function refresh() {
    asking = true;
    tried = performance.now();
    try {
      const r = await fetch(location, { headers: { Accept: "text/html" }, redirect: "manual", signal: AbortSignal.timeout(every() + 2e4) });
      refused = r.type === "opaqueredirect" ? 302 : r.status < 500 && !r.ok ? r.status : 0;
      if (!r.ok) throw new Error(r.status);
      const doc = new DOMParser().parseFromString(await r.text(), "text/html"), fresh = doc.querySelector("#main");
      if (!waits()) {
        const now = raw(fresh), old = parts(main), next = parts(fresh);
        if (now.length === was.length) now.forEach((html, i) => html !== was[i] && swap(old[i], next[i]));
        else {
          main.replaceChildren(...next);
          document.dispatchEvent(new CustomEvent("rlc:fresh", { detail: main }));
        }
        was = now;
        for (const part of ["#alarms", ".bar nav", ".bar .who"]) {
          const old = document.querySelector(part), next = doc.querySelector(part);
          if (old && next && old.outerHTML !== next.outerHTML && !old.contains(document.activeElement)) part === "#alarms" ? old.replaceChildren(...next.children) : old.replaceWith(next);
        }
        pulse.querySelector("time").replaceWith(doc.querySelector(".pulse time"));
        at = performance.now();
      }
    } catch { /* look says why, or how old the page is */ }
    asking = false;
    look();
  }

  function look() {
    const age = performance.now() - at, why = waits();
    again.hidden = !refused;
    if (refused) {
      const out = refused === 401;
      again.textContent = out ? "Sign in" : "Load it again";
      again.href = out ? `/login?next=${encodeURIComponent(location.pathname + location.search)}` : location;
      tell((out ? "You are signed out" : refused === 302 ? "The server leads elsewhere now" : `The server refuses this page (${refused})`) + ". As of ", "stale");
    } else if (why) tell(why);
    else if (age > 3 * every()) tell("Stale: the server does not answer. As of ", "stale");
    else tell("Refreshes by itself. As of ");
  }

  look();
  setInterval(() => {
    look();
    if (!document.hidden && !waits() && !asking && performance.now() - tried >= every()) refresh();
  }, 1e3);
})();
