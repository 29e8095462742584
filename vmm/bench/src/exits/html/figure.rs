//! A plot on the page, with what those need who cannot see it or its colours.

use std::fmt::Write as _;

/// A plot with its title, its legend and its text.
pub struct Figure<'a> {
    /// What the plot shows, unlike all other titles of the page.
    pub title: &'a str,
    /// The values that the plot shows, as text for screen readers.
    pub description: String,
    /// Names of the mechanisms in the plot, which have a colour each.
    pub mechanisms: Vec<&'static str>,
    /// The plot.
    pub svg: String,
    /// Text below the plot.
    pub caption: &'a str,
}

impl Figure<'_> {
    /// Adds the figure to the page `out`.
    pub fn write(self, out: &mut String) {
        let mut legend = String::new();
        for mechanism in &self.mechanisms {
            // Writing to a string cannot fail.
            let _ = write!(
                legend,
                "<span><i class=\"{mechanism}\"></i>{mechanism}</span>"
            );
        }
        let _ = writeln!(
            out,
            "<figure><p class=\"title\">{}</p><p class=\"key\">{legend}</p>{}<figcaption>{}\
             </figcaption></figure>",
            escaped(self.title),
            self.named(),
            escaped(self.caption)
        );
    }

    /// Returns the plot with its title and description as screen readers find them (SVG 2, "The
    /// title and desc elements").
    fn named(&self) -> String {
        let id: String = self
            .title
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let Some((begin, rest)) = self.svg.split_once('>') else {
            return String::new();
        };
        format!(
            "{begin} role=\"img\" aria-labelledby=\"{id}\" aria-describedby=\"{id}-values\">\
             <title id=\"{id}\">{}</title><desc id=\"{id}-values\">{}</desc>{rest}",
            escaped(self.title),
            escaped(&self.description)
        )
    }
}

/// Returns the mechanisms of `names`, each once and in the order of the first time.
pub fn distinct(names: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

/// Returns text with HTML's special characters escaped.
pub fn escaped(text: &str) -> String {
    // First, because the others contain this character.
    let text = text.replace('&', "&amp;");
    let text = text.replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_says_what_it_shows_without_being_seen() {
        let mut page = String::new();
        let figure = Figure {
            title: "Time & size",
            description: "trap: 64 B <1 ns".to_owned(),
            mechanisms: distinct(["trap", "native", "trap"].into_iter()),
            svg: "<svg width=\"1\">\n<g/></svg>".to_owned(),
            caption: "Copies.",
        };
        figure.write(&mut page);
        for part in [
            "<svg width=\"1\" role=\"img\" aria-labelledby=\"Time---size\"",
            "<title id=\"Time---size\">Time &amp; size</title>",
            "<desc id=\"Time---size-values\">trap: 64 B &lt;1 ns</desc>",
            "<i class=\"trap\"></i>trap</span><span><i class=\"native\"></i>native</span></p>",
            "<figcaption>Copies.</figcaption>",
        ] {
            assert!(page.contains(part), "no {part} in {page}");
        }
    }

    #[test]
    fn what_was_typed_cannot_become_part_of_the_page() {
        let typed = "--json <script>\"&";
        assert_eq!(escaped(typed), "--json &lt;script&gt;&quot;&amp;");
    }
}
