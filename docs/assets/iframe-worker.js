// Browsers start no workers for pages that are read from a folder (file:), and the search is one.
// There, a frame that nobody sees does its work. The name is the one that the search looks for.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentDocument;
      inside.open();
      inside.write(
        "<script>postMessage = data => parent.dispatchEvent(new CustomEvent('from-worker'," +
          " { detail: [window, data] }));" +
          "importScripts = (...urls) => urls.reduce((before, url) => before.then(() =>" +
          " new Promise((done, failed) => { const script = document.createElement('script');" +
          " script.src = url; script.onload = done; script.onerror = failed;" +
          " document.body.append(script); })), Promise.resolve());<\/script>" +
          `<script src="${url}"><\/script>`
      );
      inside.close();
      this.ready = new Promise((done) => (this.frame.onload = done));
      addEventListener("from-worker", ({ detail: [window, data] }) => {
        if (window === this.frame.contentWindow)
          this.dispatchEvent(new MessageEvent("message", { data }));
      });
    }
    postMessage(data) {
      this.ready.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
      );
    }
    terminate() {
      this.frame.remove();
    }
  };
}
