//! The plots, as SVG. Their colours stand for those of the page, which has them for light and dark.

use std::io;

use plotters::coord::Shift;
use plotters::prelude::{
    Cartesian2d, ChartBuilder, ChartContext, Circle, Color, DrawingArea, DrawingAreaErrorKind,
    IntoDrawingArea, IntoFont, PathElement, RGBColor, Rectangle, SVGBackend, TRANSPARENT, Text,
    TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::fit::Point;

const TEXT: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);
/// Pixels between a bar or an axis and its label.
const LABEL_GAP: i32 = 6;
/// Size in pixels of a plot with two scales. The page shows two plots side by side and larger, or
/// one on a screen of 400 pixels a fifth smaller, with text that can still be read.
const SIZE: (u32, u32) = (460, 360);
/// Size of text, as `plotters` counts it: 1.24 for a pixel of CSS.
const TEXT_SIZE: u32 = 18;
/// Height in pixels of a bar, and of the gap between two groups.
const BAR_HEIGHT: u32 = 18;
const GAP_HEIGHT: u32 = 12;
/// Pixels for the names of groups, for the values right of the bars, and for the scale below.
const NAMES_WIDTH: u32 = 118;
const VALUES_WIDTH: u32 = 66;
const SCALE_HEIGHT: u32 = 44;
const MARGIN: u32 = 8;

type Area<'s> = DrawingArea<SVGBackend<'s>, Shift>;
type Chart<'s> = ChartContext<'s, SVGBackend<'s>, Cartesian2d<Axis, Axis>>;
/// Why the library `plotters` cannot draw a plot.
pub type PlotError = DrawingAreaErrorKind<io::Error>;

/// Returns the colour of a mechanism.
fn color(mechanism: &str) -> RGBColor {
    match mechanism {
        "mediated" => RGBColor(0x0b, 0x7a, 0x5e),
        "trap" => RGBColor(0xc2, 0x3a, 0x3a),
        "forward" => RGBColor(0xb9, 0x74, 0x00),
        "passthrough" => RGBColor(0x8a, 0x3f, 0xb0),
        "native-bar" => RGBColor(0x5f, 0x6b, 0x7a),
        _ => RGBColor(0x36, 0x62, 0xc4),
    }
}

/// Bars of a bar chart that belong together.
pub struct Group {
    /// Label left of the bars.
    pub name: String,
    /// Name of the mechanism and value of each bar.
    pub bars: Vec<(&'static str, f64)>,
}

/// A line of a plot, for one mechanism.
pub struct Line {
    /// Name of the mechanism, which determines the colour.
    pub mechanism: &'static str,
    /// The points that the line connects, as (x, y) in order of x.
    pub points: Vec<(f64, f64)>,
}

/// Titles and number formats of the two axes of a plot.
pub struct Axes<'a> {
    /// Title of the x axis.
    pub x: &'a str,
    /// Title of the y axis.
    pub y: &'a str,
    /// Formats a value of the x axis.
    pub x_text: &'a dyn Fn(&f64) -> String,
    /// Formats a value of the y axis.
    pub y_text: &'a dyn Fn(&f64) -> String,
}

/// Draws groups of bars as SVG, one bar below the other, each with its value at its right end, as
/// `shown` formats it.
///
/// # Errors
/// [`PlotError`] if the plot cannot be drawn.
pub fn bars(
    groups: &[Group],
    x: &Axis,
    axes: &Axes<'_>,
    shown: &dyn Fn(&f64) -> String,
) -> Result<String, PlotError> {
    let pixels = groups.iter().map(Group::height).sum::<u32>().max(1);
    let size = (SIZE.0, pixels + SCALE_HEIGHT + 2 * MARGIN);
    svg(size, |root| {
        // The second axis counts pixels from below.
        let y = Axis::linear(pixels.into(), Vec::new());
        let mut chart = ChartBuilder::on(root)
            .margin(MARGIN)
            .margin_right(VALUES_WIDTH)
            .x_label_area_size(SCALE_HEIGHT)
            .y_label_area_size(NAMES_WIDTH)
            .build_cartesian_2d(x.clone(), y)?;
        mesh(&mut chart, axes)?;
        let mut top = pixels;
        for group in groups {
            group.draw(root, &mut chart, top, (x, shown))?;
            top -= group.height();
        }
        Ok(())
    })
}

impl Group {
    fn height(&self) -> u32 {
        BAR_HEIGHT * self.bars.len() as u32 + GAP_HEIGHT
    }

    /// Draws the group below `top`, in pixels from below.
    fn draw(
        &self,
        root: &Area<'_>,
        chart: &mut Chart<'_>,
        top: u32,
        (x, shown): (&Axis, &dyn Fn(&f64) -> String),
    ) -> Result<(), PlotError> {
        let (floor, end) = x.ends();
        let top = f64::from(top) - f64::from(GAP_HEIGHT) / 2.0;
        for (number, (mechanism, value)) in self.bars.iter().enumerate() {
            let above = top - f64::from(BAR_HEIGHT) * number as f64;
            let below = above - f64::from(BAR_HEIGHT) + 2.0;
            // Longer bars end at the right edge of the plot, with their value beside.
            let corners = [(floor, below), (value.clamp(floor, end), above)];
            chart.draw_series([Rectangle::new(corners, color(mechanism).filled())])?;
            let (right, middle) = chart.backend_coord(&(corners[1].0, f64::midpoint(below, above)));
            let at = (right + LABEL_GAP, middle);
            write(root, shown(value), at, HPos::Left)?;
        }
        let middle = top - f64::from(BAR_HEIGHT) * self.bars.len() as f64 / 2.0;
        let (left, middle) = chart.backend_coord(&(floor, middle));
        write(
            root,
            self.name.clone(),
            (left - LABEL_GAP, middle),
            HPos::Right,
        )
    }
}

/// Draws lines on logarithmic axes as SVG. The first line is wide, because others may cover it.
///
/// # Errors
/// [`PlotError`] if the plot cannot be drawn.
pub fn lines(lines: &[Line], axes: &Axes<'_>) -> Result<String, PlotError> {
    svg(SIZE, |root| {
        let points = || lines.iter().flat_map(|line| &line.points);
        let x = Axis::marked(points().map(|(x, _)| *x).collect());
        let y = Axis::decades(points().map(|(_, y)| *y));
        let mut chart = chart(root, x, y)?;
        mesh(&mut chart, axes)?;
        for (index, line) in lines.iter().enumerate() {
            let color = color(line.mechanism);
            let (width, radius) = if index == 0 { (7, 7) } else { (2, 4) };
            let path = PathElement::new(line.points.clone(), color.stroke_width(width));
            chart.draw_series([path])?;
            let dots = line.points.iter();
            chart.draw_series(dots.map(|at| Circle::new(*at, radius, color.filled())))?;
        }
        Ok(())
    })
}

/// Draws points as SVG, and for each mechanism in `costs` a line: time as a function of exits if
/// each exit costs the given number of nanoseconds.
///
/// # Errors
/// [`PlotError`] if the plot cannot be drawn.
pub fn scatter(
    points: &[Point],
    costs: &[(&'static str, f64)],
    axes: &Axes<'_>,
) -> Result<String, PlotError> {
    svg(SIZE, |root| {
        let x = Axis::decades(points.iter().map(|point| point.exits));
        let y = Axis::decades(points.iter().map(|point| point.beyond_ns));
        let mut chart = chart(root, x.clone(), y.clone())?;
        mesh(&mut chart, axes)?;
        let costs = costs.iter().enumerate();
        for (place, (mechanism, cost)) in costs.filter(|(_, (_, cost))| *cost > 0.0) {
            let ((left, right), (bottom, top)) = (x.ends(), y.ends());
            // The part of the line that is within the plot.
            let (from, to) = (left.max(bottom / cost), right.min(top / cost));
            if from < to {
                let ends = vec![(from, cost * from), (to, cost * to)];
                // One may lie on the other.
                let width = if place == 0 { 6 } else { 2 };
                let style = color(mechanism).stroke_width(width);
                chart.draw_series([PathElement::new(ends, style)])?;
            }
        }
        let dots = points.iter();
        chart.draw_series(dots.map(|point| {
            let style = color(point.mechanism).filled();
            Circle::new((point.exits, point.beyond_ns), 5, style)
        }))?;
        Ok(())
    })
}

fn svg(
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), PlotError>,
) -> Result<String, PlotError> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&root)?;
        root.present()?;
    }
    Ok(text)
}

fn chart<'s>(root: &Area<'s>, x: Axis, y: Axis) -> Result<Chart<'s>, PlotError> {
    ChartBuilder::on(root)
        .margin(MARGIN)
        .margin_right(24)
        .x_label_area_size(SCALE_HEIGHT)
        .y_label_area_size(74)
        .build_cartesian_2d(x, y)
}

fn mesh(chart: &mut Chart<'_>, axes: &Axes<'_>) -> Result<(), PlotError> {
    chart
        .configure_mesh()
        .axis_style(TEXT)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .label_style(style(TEXT_SIZE))
        .axis_desc_style(style(TEXT_SIZE))
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(axes.x_text)
        .y_label_formatter(axes.y_text)
        .draw()
}

fn write(root: &Area<'_>, text: String, at: (i32, i32), side: HPos) -> Result<(), PlotError> {
    let style = style(TEXT_SIZE).pos(Pos::new(side, VPos::Center));
    root.draw(&Text::new(text, at, style))
}

fn style(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plotted(draw: impl FnOnce(&Axes<'_>) -> Result<String, PlotError>) -> String {
        let text = |value: &f64| format!("{value}");
        let axes = Axes {
            x: "x",
            y: "y",
            x_text: &text,
            y_text: &text,
        };
        let svg = draw(&axes).unwrap();
        assert!(svg.starts_with("<svg"), "{svg:.80}");
        assert!(svg.contains("#010101"), "text has its colour");
        svg
    }

    #[test]
    fn plots_have_the_colours_that_the_page_replaces() {
        let groups = [Group {
            name: String::from("load"),
            bars: vec![("mediated", 0.0), ("trap", 1.0)],
        }];
        let x = Axis::decades([0.0, 1.0].into_iter());
        let svg = plotted(|axes| bars(&groups, &x, axes, axes.x_text));
        assert!(svg.contains("#0B7A5E") && svg.contains("#C23A3A"));
        let lines_of = ["native", "forward"].map(|mechanism| Line {
            mechanism,
            points: vec![(64.0, 3.0), (4096.0, 30.0)],
        });
        let svg = plotted(|axes| lines(&lines_of, axes));
        assert!(svg.contains("#3662C4") && svg.contains("#B97400"));
    }

    #[test]
    fn plots_of_nothing_can_be_drawn() {
        let x = Axis::decades(std::iter::empty());
        plotted(|axes| bars(&[], &x, axes, axes.x_text));
        plotted(|axes| lines(&[], axes));
        plotted(|axes| scatter(&[], &[("trap", 1000.0)], axes));
    }

    /// What follows each `name="` in a text.
    fn numbers(svg: &str, name: &str) -> Vec<i32> {
        let name = format!(" {name}=\"");
        let attributes = svg.split(&name).skip(1);
        let values = attributes.map(|rest| rest.split('"').next().unwrap().parse().unwrap());
        values.collect()
    }

    #[test]
    fn every_bar_is_within_a_plot_as_high_as_it_needs() {
        let groups: Vec<Group> = (0..12)
            .map(|number| Group {
                name: format!("workload-{number}"),
                bars: vec![("mediated", 1.0), ("trap", 1e9), ("forward", 0.0)],
            })
            .collect();
        let x = Axis::decades([0.0, 1.0, 1000.0].into_iter());
        let svg = plotted(|axes| bars(&groups, &x, axes, axes.x_text));
        let (width, height) = (numbers(&svg, "width")[0], numbers(&svg, "height")[0]);
        assert_eq!(width, 460);
        let rectangles: Vec<&str> = svg.split("<rect ").skip(1).collect();
        assert_eq!(rectangles.len(), 36);
        for rectangle in rectangles {
            let rectangle = &format!(" {rectangle}");
            let all = |name| numbers(rectangle, name)[0];
            assert!(
                all("x") >= 0 && all("x") + all("width") <= width,
                "{rectangle}"
            );
            assert!(
                all("y") >= 0 && all("y") + all("height") <= height,
                "{rectangle}"
            );
        }
    }
}
