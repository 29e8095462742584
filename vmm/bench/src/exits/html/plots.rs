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
/// Pixels between the axis and its labels.
const LABEL_GAP: i32 = 8;
/// Sizes in pixels of full-width plots, and of plots side by side.
const WIDE: (u32, u32) = (1160, 380);
const HALF: (u32, u32) = (560, 380);

type Area<'s> = DrawingArea<SVGBackend<'s>, Shift>;
type Chart<'s> = ChartContext<'s, SVGBackend<'s>, Cartesian2d<Axis, Axis>>;
/// Error of drawing a plot with the library `plotters`.
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

/// Bars that stand side by side in a bar chart.
pub struct Group {
    /// Label under the bars.
    pub name: String,
    /// Mechanism and value of each bar.
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

/// Draws groups of bars as SVG, each bar with its value above it.
///
/// # Errors
/// [`PlotError`] if the plot cannot be drawn.
pub fn bars(groups: &[Group], y: &Axis, axes: &Axes<'_>) -> Result<String, PlotError> {
    svg(WIDE, |root| {
        let x = Axis::linear(groups.len().max(1) as f64, Vec::new());
        let mut chart = chart(root, x, y.clone())?;
        mesh(&mut chart, axes)?;
        let floor = y.ends().0;
        for (index, group) in groups.iter().enumerate() {
            let start = index as f64;
            let width = 0.8 / group.bars.len().max(1) as f64;
            for (number, (mechanism, value)) in group.bars.iter().enumerate() {
                let left = start + 0.1 + width * (number as f64 + 0.1);
                let right = left + 0.8 * width;
                // Longer bars end at the top of the plot, with their value above.
                let corners = [(left, floor), (right, value.clamp(floor, y.ends().1))];
                chart.draw_series([Rectangle::new(corners, color(mechanism).filled())])?;
                let above = chart.backend_coord(&(f64::midpoint(left, right), corners[1].1));
                let shown = (axes.y_text)(value);
                write(root, shown, (above.0, above.1 - 3), VPos::Bottom)?;
            }
            let under = chart.backend_coord(&(start + 0.5, floor));
            let name = group.name.clone();
            write(root, name, (under.0, under.1 + LABEL_GAP), VPos::Top)?;
        }
        Ok(())
    })
}

/// Draws lines on logarithmic axes as SVG. The first line is wide, because others may cover it.
///
/// # Errors
/// [`PlotError`] if the plot cannot be drawn.
pub fn lines(lines: &[Line], axes: &Axes<'_>) -> Result<String, PlotError> {
    svg(HALF, |root| {
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

/// Draws points as SVG, and for each mechanism of `costs` the line on which each exit costs this
/// many nanoseconds.
///
/// # Errors
/// [`PlotError`] if the plot cannot be drawn.
pub fn scatter(
    points: &[Point],
    costs: &[(&'static str, f64)],
    axes: &Axes<'_>,
) -> Result<String, PlotError> {
    svg(WIDE, |root| {
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
        .margin(8)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(74)
        .build_cartesian_2d(x, y)
}

fn mesh(chart: &mut Chart<'_>, axes: &Axes<'_>) -> Result<(), PlotError> {
    chart
        .configure_mesh()
        .axis_style(TEXT)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .label_style(style(14))
        .axis_desc_style(style(15))
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(axes.x_text)
        .y_label_formatter(axes.y_text)
        .draw()
}

fn write(root: &Area<'_>, text: String, at: (i32, i32), under: VPos) -> Result<(), PlotError> {
    let style = style(13).pos(Pos::new(HPos::Center, under));
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
        let y = Axis::decades([0.0, 1.0].into_iter());
        let svg = plotted(|axes| bars(&groups, &y, axes));
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
        let y = Axis::decades(std::iter::empty());
        plotted(|axes| bars(&[], &y, axes));
        plotted(|axes| lines(&[], axes));
        plotted(|axes| scatter(&[], &[("trap", 1000.0)], axes));
    }
}
