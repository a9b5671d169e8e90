// A login code comes behind "#", which browsers do not send. It is spent by the form alone.
"use strict";
const code = location.hash.slice(1);
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("secret").value = decodeURIComponent(code);
  document.getElementById("login").submit();
}
