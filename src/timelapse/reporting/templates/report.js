"use strict";
/* Charts: drawn again at the width there is; read with the pointer or the arrow keys; zoomed by dragging.
   Texts come from the page's own JSON and only ever become text nodes. */
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const el = (name, attributes, text) => {
    const e = document.createElementNS(NS, name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const html = (name, css, text) => {
    const e = document.createElement(name);
    if (css) e.className = css;
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const count = (v) => v.toLocaleString("en-US");
  const short = (v) => v >= 1e9 ? +(v / 1e9).toFixed(1) + "G" : v >= 1e6 ? +(v / 1e6).toFixed(1) + "M"
    : v >= 1e4 ? +(v / 1e3).toFixed(1) + "k" : count(v);
  const nice = (v) => {
    let p = 1;
    for (;;) { for (const d of [1, 2, 5]) if (d * p >= v) return d * p; p *= 10; }
  };
  const moment = (s, step) => {
    const d = new Date(s * 1000);
    if (isNaN(d)) return s + " s";
    const t = d.toISOString();
    return step >= 86400 ? t.slice(0, 10) : step >= 60 ? t.slice(5, 16).replace("T", " ") : t.slice(11, step >= 1 ? 19 : 23);
  };
  const whole = (s, step) => {
    const d = new Date(s * 1000);
    return isNaN(d) ? s + " s" : d.toISOString().slice(0, step >= 86400 ? 10 : step >= 1 ? 19 : 23).replace("T", " ");
  };

  function start(figure) {
    const source = figure.querySelector("script[type='application/json']");
    if (!source) return;
    const data = JSON.parse(source.textContent);
    if (!data.bands.length) return;
    const bins = data.bands[0].counts.length;
    let range = [0, bins], hidden = new Set(), at = -1, drag = null, view = null;
    figure.querySelector("svg").remove();
    figure.append(html("p", "name", data.title));
    const legend = html("div", "legend");
    for (const band of data.bands) {
      const b = html("button");
      b.type = "button";
      b.setAttribute("aria-pressed", "true");
      const dot = el("svg", { class: "tlc", viewBox: "0 0 10 10" });
      dot.append(el("rect", { class: band.css, width: 10, height: 10, rx: 2 }));
      b.append(dot, band.name);
      b.addEventListener("click", () => {
        hidden.has(band) ? hidden.delete(band) : hidden.add(band);
        b.setAttribute("aria-pressed", String(!hidden.has(band)));
        draw();
      });
      legend.append(b);
    }
    const reset = html("button", "", "whole range");
    reset.type = "button";
    reset.hidden = true;
    reset.addEventListener("click", () => zoom(0, bins));
    legend.prepend(reset);
    figure.append(legend);
    const svg = el("svg", { class: "tlc", role: "img", "aria-label": data.title });
    const tip = html("div", "tip");
    tip.hidden = true;
    tip.setAttribute("role", "status");
    figure.append(svg, tip);

    function columns() {
      /* So many columns as fit, of whole groups of bins that begin on the calendar. */
      const length = range[1] - range[0];
      const room = Math.max(20, Math.min(160, Math.floor((svg.clientWidth || 900) / 6)));
      let group = length <= room ? 1 : data.group;
      while (length / group > room * 1.2) group *= 2;
      const shift = group === 1 ? 0 : (data.offset + range[0]) % group;
      const list = [];
      for (let a = range[0] - shift; a < range[1]; a += group) {
        const lo = Math.max(a, range[0]), hi = Math.min(a + group, range[1]);
        const values = data.bands.map((b) => {
          let sum = 0;
          for (let i = lo; i < hi; i++) sum += b.counts[i];
          return sum;
        });
        list.push({ time: data.start + a * data.step, lo, hi, values });
      }
      return { list, step: group * data.step };
    }

    function draw() {
      const width = Math.max(280, svg.clientWidth || figure.clientWidth || 900), tall = width < 520 ? 190 : 220;
      svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
      svg.setAttribute("height", tall);
      const left = 46, right = 8, top = 8, bottom = 24, inner = width - left - right;
      const { list, step } = columns();
      const shown = data.bands.map((b) => !hidden.has(b));
      const sums = (below) => list.map((c) => c.values.reduce((s, v, i) => s + (shown[i] && data.bands[i].below === below ? v : 0), 0));
      const high = Math.max(...sums(false)), low = Math.max(...sums(true));
      const scale = (tall - top - bottom) / Math.max(1, high + low), zero = top + high * scale, each = inner / list.length;
      const parts = [];
      const tick = nice((high + low) / 4);
      for (let v = -Math.floor(low / tick) * tick; v <= high; v += tick) {
        const y = zero - v * scale;
        parts.push(el("path", { class: "grid", d: `M${left} ${y}h${inner}` }));
        parts.push(el("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, short(Math.abs(v))));
      }
      const up = list.map(() => 0), down = list.map(() => 0);
      data.bands.forEach((band, i) => {
        if (!shown[i]) return;
        const side = band.below ? down : up;
        let d = "";
        list.forEach((c, n) => {
          const v = c.values[i];
          if (!v) return;
          const h = v * scale, y = band.below ? zero + side[n] * scale : zero - side[n] * scale - h;
          d += `M${(left + n * each + each * 0.08).toFixed(2)} ${y.toFixed(2)}h${(each * 0.84).toFixed(2)}v${h.toFixed(2)}h-${(each * 0.84).toFixed(2)}z`;
          side[n] += v;
        });
        parts.push(el("path", { class: band.css, d }));
      });
      parts.push(el("path", { class: "base", d: `M${left} ${zero}h${inner}` }));
      const every = Math.max(1, Math.ceil(list.length / Math.max(1, Math.floor(inner / 100))));
      for (let n = 0; n < list.length; n += every) {
        const x = left + n * each;
        if (x > width - 70) break;
        parts.push(el("text", { x, y: tall - 7 }, moment(list[n].time, step)));
      }
      const cursor = el("rect", { class: "cursor", y: top, height: tall - top - bottom, width: 0 });
      const select = el("rect", { class: "select", y: top, height: tall - top - bottom, width: 0 });
      parts.push(cursor, select);
      svg.replaceChildren(...parts);
      view = { list, step, left, each, width, cursor, select };
      reset.hidden = range[0] === 0 && range[1] === bins;
      if (at >= 0) show(Math.min(at, list.length - 1));
    }

    function show(n) {
      at = n;
      if (n < 0) { tip.hidden = true; view.cursor.setAttribute("width", 0); return; }
      const c = view.list[n], x = view.left + n * view.each;
      view.cursor.setAttribute("x", x);
      view.cursor.setAttribute("width", view.each);
      tip.replaceChildren(html("div", "", `${whole(c.time, view.step)} UTC`),
        ...data.bands.map((b, i) => [b, c.values[i]]).filter(([b]) => !hidden.has(b)).map(([b, v]) => html("div", "", `${b.name} ${count(v)}`)));
      tip.hidden = false;
      const middle = x + view.each / 2;
      tip.style.left = Math.max(0, Math.min(middle + 10, figure.clientWidth - tip.offsetWidth)) + "px";
      if (middle + 10 + tip.offsetWidth > figure.clientWidth) tip.style.left = Math.max(0, middle - tip.offsetWidth - 10) + "px";
    }

    function zoom(lo, hi) {
      if (hi - lo < 2) return;
      range = [lo, hi];
      at = -1;
      tip.hidden = true;
      draw();
    }

    const column = (event) => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * view.width / box.width;
      return Math.max(0, Math.min(view.list.length - 1, Math.floor((x - view.left) / view.each)));
    };
    svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse" && event.button === 0) { drag = column(event); svg.setPointerCapture(event.pointerId); }
    });
    svg.addEventListener("pointermove", (event) => {
      const n = column(event);
      if (drag !== null) {
        const lo = Math.min(drag, n), hi = Math.max(drag, n) + 1;
        view.select.setAttribute("x", view.left + lo * view.each);
        view.select.setAttribute("width", hi - lo > 1 ? (hi - lo) * view.each : 0);
      }
      show(n);
    });
    svg.addEventListener("pointerup", (event) => {
      if (drag === null) return;
      const n = column(event), lo = Math.min(drag, n), hi = Math.max(drag, n);
      drag = null;
      view.select.setAttribute("width", 0);
      if (hi > lo) zoom(view.list[lo].lo, view.list[hi].hi);
    });
    svg.addEventListener("pointerleave", () => { if (drag === null) show(-1); });
    svg.addEventListener("dblclick", () => zoom(0, bins));
    figure.addEventListener("keydown", (event) => {
      const last = view.list.length - 1;
      if (event.key === "ArrowRight") show(Math.min(last, at + 1));
      else if (event.key === "ArrowLeft") show(Math.max(0, at < 0 ? last : at - 1));
      else if (event.key === "Escape") { show(-1); zoom(0, bins); }
      else return;
      event.preventDefault();
    });
    figure.addEventListener("focusout", () => show(-1));
    figure.dataset.ready = "yes";
    draw();
    let before = 0;
    new ResizeObserver(() => { if (figure.clientWidth !== before) { before = figure.clientWidth; draw(); } }).observe(figure);
  }

  document.querySelectorAll("figure.chart").forEach(start);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.dataset.was = d.open; d.open = true; }));
  addEventListener("afterprint", () => document.querySelectorAll("details").forEach((d) => { d.open = d.dataset.was === "true"; }));
})();
