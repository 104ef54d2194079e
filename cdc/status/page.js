"use strict";
// The page is drawn by the server. This asks for it again, and takes its figures away when nobody answers.
(() => {
  const every = Number(document.body.dataset.every) * 1000;
  const note = document.getElementById("gone");
  let heard = Date.now();
  let timer = 0;

  const silent = () => {
    note.textContent = `Not known since ${new Date(heard).toISOString().slice(11, 19)} UTC: the command that serves this page does not answer.`;
    note.hidden = false;
    document.body.classList.add("gone");
  };

  const ask = async () => {
    clearTimeout(timer);
    try {
      const answer = await fetch(location.pathname, { cache: "no-store", signal: AbortSignal.timeout(every + 5000) });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      document.querySelector("main").replaceWith(document.adoptNode(page.querySelector("main")));
      document.title = page.title;
      heard = Date.now();
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
