"use strict";
// The page is drawn by the server. This asks for it again, and takes its figures away when nobody answers.
(() => {
  const every = Math.min(Math.max(Number(document.body.dataset.every) || 1, 1), 5) * 1000;
  const note = document.getElementById("gone");
  let heard = Date.now();
  let drawn = heard;
  let timer = 0;

  const time = at => {
    const [day, clock] = new Date(at).toISOString().split("T");
    const today = new Date().toISOString().startsWith(day);
    return `${today ? "" : `${day} `}${clock.slice(0, 8)} UTC`;
  };

  const silent = () => {
    note.textContent = `Not known since ${time(heard)}: the command that serves this page does not answer.`;
    note.hidden = false;
    document.body.classList.add("gone");
  };

  // Text that somebody is selecting stays under the pointer, but not for longer than figures may be old.
  const selecting = () => !getSelection().isCollapsed && Date.now() - drawn < 15000;

  const ask = async () => {
    clearTimeout(timer);
    try {
      const answer = await fetch(location.pathname, { cache: "no-store", signal: AbortSignal.timeout(every + 5000) });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      heard = Date.now();
      if (!selecting()) {
        document.querySelector("main").replaceWith(document.adoptNode(page.querySelector("main")));
        document.title = page.title;
        drawn = heard;
      }
      note.hidden = true;
      document.body.classList.remove("gone");
    } catch {
      silent();
    }
    timer = setTimeout(ask, every);
  };

  // A phone that slept shows what it showed before: not for longer than it takes to notice.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    if (Date.now() - heard > 3 * every) silent();
    ask();
  });
  timer = setTimeout(ask, every);
})();
