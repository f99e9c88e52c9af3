// Asks for the page again every data-every seconds and replaces the parts that
// changed. It waits while somebody edits, drags, zooms, selects or has paused
// it, and while the page is hidden; it says so, and says when no answer comes.
(() => {
  const pulse = document.querySelector(".pulse[data-every]"), main = document.querySelector("#main");
  if (!pulse) return;
  const every = () => pulse.dataset.every * 1e3, say = pulse.querySelector(".say-pulse"), pause = pulse.querySelector("[data-do=pause]");
  const parts = (of) => [...of.children], raw = (of) => parts(of).map((p) => p.outerHTML);
  let was = raw(main), edited = false, zoomed = new URL(location).searchParams.has("to"), dragging = false, stopped = false, asking = false, at = performance.now();

  const tell = (text, is) => { if (say.textContent !== text) say.textContent = text; is ? pulse.dataset.is = is : delete pulse.dataset.is; };
  const waits = () => stopped ? "Paused. As of " : edited ? "Waits while you edit. As of " : zoomed || dragging ? "Waits while the chart is zoomed. As of " : help() || getSelection()?.type === "Range" ? "Waits. As of " : "";
  const help = () => document.querySelector("dialog[open]");

  main.addEventListener("input", () => { edited = true; });
  main.addEventListener("pointerdown", (e) => { dragging = !!e.target.closest(".plot"); });
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
    try {
      const r = await fetch(location, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(every() + 2e4) });
      if (!r.ok || r.redirected) throw new Error(r.status);
      const doc = new DOMParser().parseFromString(await r.text(), "text/html"), fresh = doc.querySelector("#main");
      if (!waits()) {
        const now = raw(fresh), old = parts(main), next = parts(fresh);
        if (now.length === was.length) now.forEach((html, i) => html !== was[i] && swap(old[i], next[i]));
        else {
          main.replaceChildren(...next);
          document.dispatchEvent(new CustomEvent("rlc:fresh", { detail: main }));
        }
        was = now;
        const bar = document.querySelector(".bar nav"), counts = doc.querySelector(".bar nav");
        if (counts && bar.innerHTML !== counts.innerHTML && !bar.contains(document.activeElement)) bar.replaceWith(counts); // counts
        pulse.querySelector("time").replaceWith(doc.querySelector(".pulse time"));
        at = performance.now();
      }
    } catch { /* look says how old the page is */ }
    asking = false;
    look();
  }

  function look() {
    const age = performance.now() - at, why = waits();
    if (why) tell(why);
    else if (age > 3 * every()) tell("Stale: the server does not answer. As of ", "stale");
    else tell("Refreshes by itself. As of ");
  }

  look();
  setInterval(() => {
    look();
    if (!document.hidden && !waits() && !asking && performance.now() - at >= every()) refresh();
  }, 1e3);
})();
