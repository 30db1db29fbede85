//! The few shapes of SVG that the plots need. What they show is decided in `plot`.

use std::fmt::Write as _;

/// Where a text stands relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// The text begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

/// A picture in the making. Lengths are in pixels from the upper left corner.
#[derive(Debug)]
pub(crate) struct Canvas {
    width: f64,
    height: f64,
    body: String,
}

impl Canvas {
    pub(crate) fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            body: String::new(),
        }
    }

    pub(crate) fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ));
    }

    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
        self.add(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
        ));
    }

    pub(crate) fn path(&mut self, points: &[(f64, f64)], colour: &str) {
        let list: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        self.add(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            list.join(" ")
        ));
    }

    pub(crate) fn dot(&mut self, (x, y): (f64, f64), colour: &str) {
        self.add(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\" stroke=\"#222\" stroke-width=\"0.6\"/>"
        ));
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(text)
        ));
    }

    fn add(&mut self, shape: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{shape}").ok();
    }

    pub(crate) fn finish(self) -> String {
        let (width, height) = (self.width, self.height);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{}</svg>\n",
            self.body
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_the_picture_closed() {
        let mut canvas = Canvas::new(10.0, 10.0);
        canvas.text((1.0, 2.0), Anchor::Start, "a < b & c");
        let svg = canvas.finish();
        assert!(svg.contains("a &lt; b &amp; c") && svg.ends_with("</svg>\n"));
    }
}
