// Numbers and times as text, by the same rules as webapp/core/templatetags (a test compares the two).
(function () {
  "use strict";
  const NONE = "–";
  const MINUS = "−";
  const STEPS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

  function threeDigits(magnitude) {
    if (magnitude < 0.001) {
      const [mantissa, exponent] = magnitude.toExponential(2).split("e");
      return `${mantissa}e${MINUS}${-Number(exponent)}`;
    }
    const decimals = 2 - Math.floor(Math.log10(magnitude));
    let text = magnitude.toFixed(Math.max(decimals, 0));
    if (Number(text) >= 10 ** (3 - decimals) && decimals > 0) text = magnitude.toFixed(decimals - 1);
    return text;
  }

  // `whole`: the number is a count, so below 1000 it has no decimals (Python knows by the type).
  function num(value, whole) {
    if (value === null || value === undefined || typeof value !== "number") return NONE;
    if (Number.isNaN(value)) return "NaN";
    if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
    if (value === 0) return "0";
    const sign = value < 0 ? MINUS : "";
    const magnitude = Math.abs(value);
    if (whole && magnitude < 1000) return sign + Math.trunc(magnitude);
    if (magnitude >= 999.5) {
      for (const [step, suffix] of STEPS) {
        if (magnitude >= step * 0.9995) return sign + threeDigits(magnitude / step) + suffix;
      }
    }
    return sign + threeDigits(magnitude);
  }

  function interval(value, half) {
    if (typeof value !== "number" || typeof half !== "number" || !Number.isFinite(value) || !Number.isFinite(half) || half <= 0) return num(value);
    const exponent = Math.floor(Math.log10(half));
    const digits = half / 10 ** exponent < 1.95 ? 2 : 1;
    const decimals = Math.max(0, digits - 1 - exponent);
    const text = Math.abs(value).toFixed(decimals);
    return `${value < 0 && Number(text) !== 0 ? MINUS : ""}${text} ± ${half.toFixed(decimals)}`;
  }

  function duration(seconds) {
    if (typeof seconds !== "number" || !Number.isFinite(seconds) || seconds < 0) return NONE;
    if (seconds === 0) return "0 s";
    if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
    if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
    const whole = Math.round(seconds);
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
    const minutes = Math.floor(whole / 60);
    if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
    const hours = Math.floor(minutes / 60);
    return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  }

  function relative(momentMs, nowMs) {
    const gap = (nowMs - momentMs) / 1000;
    const size = Math.abs(gap);
    if (size < 1) return "now";
    let text;
    if (size < 60) text = `${Math.floor(size)} s`;
    else if (size < 3600) text = `${Math.floor(size / 60)} min`;
    else if (size < 48 * 3600) text = `${Math.floor(size / 3600)} h`;
    else if (size < 14 * 86400) text = `${Math.floor(size / 86400)} d`;
    else return new Date(momentMs).toISOString().slice(0, 10);
    return gap > 0 ? `${text} ago` : `in ${text}`;
  }

  window.Spadework = window.Spadework || {};
  window.Spadework.format = { num, interval, duration, relative, NONE };
})();
