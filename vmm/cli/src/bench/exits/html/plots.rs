//! The plots, as SVG. Their colours stand for those of the page, which has them for light and dark.

use std::io;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::combinators::LogCoord;
use plotters::prelude::{
    Cartesian2d, ChartBuilder, ChartContext, Circle, Color, DrawingArea, DrawingAreaErrorKind,
    IntoDrawingArea, IntoFont, IntoLogRange, PathElement, RGBColor, Rectangle, SVGBackend,
    ShapeStyle, TRANSPARENT, Text, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::fit::Point;

const TEXT: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);
/// Between the axis and what is written under it, in pixels.
const LABEL_GAP: i32 = 8;

type Area<'s> = DrawingArea<SVGBackend<'s>, Shift>;
type Chart<'s> = ChartContext<'s, SVGBackend<'s>, Cartesian2d<LogCoord<f64>, LogCoord<f64>>>;
/// What can go wrong with a plot.
pub type PlotError = DrawingAreaErrorKind<io::Error>;

/// The colour of a mechanism.
pub fn color(mechanism: &str) -> RGBColor {
    match mechanism {
        "mediated" => RGBColor(0x0b, 0x7a, 0x5e),
        "trap" => RGBColor(0xc2, 0x3a, 0x3a),
        "forward" => RGBColor(0xb9, 0x74, 0x00),
        _ => RGBColor(0x36, 0x62, 0xc4),
    }
}

/// Bars of one group.
pub struct Group {
    /// What is written under it.
    pub name: String,
    /// Mechanism and value of each; zero is shown as such, below everything else.
    pub bars: Vec<(&'static str, f64)>,
}

/// A line of one mechanism.
pub struct Line {
    /// Mechanism.
    pub mechanism: &'static str,
    /// Its points, in order of x.
    pub points: Vec<(f64, f64)>,
}

/// What is written at the axes.
pub struct Axes<'a> {
    /// Under the plot.
    pub x: &'a str,
    /// Beside it.
    pub y: &'a str,
    /// How values of x are written.
    pub x_text: &'a dyn Fn(&f64) -> String,
    /// How values of y are written.
    pub y_text: &'a dyn Fn(&f64) -> String,
}

/// Groups of bars, of a height that counts logarithmically.
pub fn bars(groups: &[Group], axes: &Axes<'_>) -> Result<String, PlotError> {
    svg((1160, 380), |root| {
        let values = groups.iter().flat_map(|group| &group.bars);
        let y = decades(values.map(|(_, value)| *value));
        // From 1, since the axis is logarithmic: groups are a decade wide.
        let wide = 10_f64;
        let end = wide.powf(groups.len() as f64);
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .x_label_area_size(44)
            .y_label_area_size(74)
            .build_cartesian_2d((1.0..end).log_scale(), y.clone().log_scale())?;
        mesh(&mut chart, axes, false)?;
        for (index, group) in groups.iter().enumerate() {
            let at = |part: f64| wide.powf(index as f64 + part);
            let width = 0.8 / group.bars.len().max(1) as f64;
            for (number, (mechanism, value)) in group.bars.iter().enumerate() {
                let left = 0.1 + width * number as f64;
                let (x0, x1) = (at(left + 0.1 * width), at(left + 0.9 * width));
                let top = value.max(y.start);
                let style = ShapeStyle::from(color(mechanism)).filled();
                chart.draw_series([Rectangle::new([(x0, y.start), (x1, top)], style)])?;
                let (px, py) = chart.backend_coord(&((x0 * x1).sqrt(), top));
                let shown = (axes.y_text)(value);
                root.draw(&Text::new(
                    shown,
                    (px, py - 3),
                    small(HPos::Center, VPos::Bottom),
                ))?;
            }
            let (px, py) = chart.backend_coord(&(at(0.5), y.start));
            let name = group.name.clone();
            root.draw(&Text::new(
                name,
                (px, py + LABEL_GAP),
                small(HPos::Center, VPos::Top),
            ))?;
        }
        Ok(())
    })
}

/// Lines, both axes logarithmic.
pub fn lines(lines: &[Line], axes: &Axes<'_>) -> Result<String, PlotError> {
    svg((560, 380), |root| {
        let points = || lines.iter().flat_map(|line| &line.points);
        let x = decades(points().map(|(x, _)| *x));
        let y = decades(points().map(|(_, y)| *y));
        let mut chart = log_log(root, x, y)?;
        mesh(&mut chart, axes, true)?;
        for line in lines {
            let color = color(line.mechanism);
            let path = PathElement::new(line.points.clone(), color.stroke_width(2));
            chart.draw_series([path])?;
            let dots = line.points.iter();
            chart.draw_series(dots.map(|at| Circle::new(*at, 4, color.filled())))?;
        }
        Ok(())
    })
}

/// Points, and the line of a constant cost of one exit.
pub fn scatter(
    points: &[Point],
    exit_ns: Option<f64>,
    axes: &Axes<'_>,
) -> Result<String, PlotError> {
    svg((1160, 420), |root| {
        let x = decades(points.iter().map(|point| point.exits));
        let y = decades(points.iter().map(|point| point.beyond_ns));
        let mut chart = log_log(root, x.clone(), y.clone())?;
        mesh(&mut chart, axes, true)?;
        if let Some(cost) = exit_ns {
            // The part of the line that is within the plot.
            let from = x.start.max(y.start / cost);
            let to = x.end.min(y.end / cost);
            let ends = vec![(from, cost * from), (to, cost * to)];
            chart.draw_series([PathElement::new(ends, TEXT.stroke_width(2))])?;
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

fn log_log<'s>(root: &Area<'s>, x: Range<f64>, y: Range<f64>) -> Result<Chart<'s>, PlotError> {
    ChartBuilder::on(root)
        .margin(8)
        .x_label_area_size(44)
        .y_label_area_size(74)
        .build_cartesian_2d(x.log_scale(), y.log_scale())
}

fn mesh(chart: &mut Chart<'_>, axes: &Axes<'_>, with_x: bool) -> Result<(), PlotError> {
    let mut mesh = chart.configure_mesh();
    mesh.axis_style(TEXT)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .label_style(style(13))
        .axis_desc_style(style(14))
        .y_desc(axes.y)
        .y_label_formatter(axes.y_text);
    if with_x {
        mesh.x_desc(axes.x).x_label_formatter(axes.x_text);
    } else {
        mesh.disable_x_mesh().x_labels(0);
    }
    mesh.draw()
}

fn style(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

fn small(horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    style(12).pos(Pos::new(horizontal, vertical))
}

/// Whole decades around all values but zeros, which get a place below.
fn decades(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    let mut has_zero = false;
    for value in values {
        has_zero |= value <= 0.0;
        if value > 0.0 && value.is_finite() {
            (low, high) = (low.min(value), high.max(value));
        }
    }
    if low > high {
        return 0.1..10.0;
    }
    let floor = low.log10().floor() - if has_zero { 1.0 } else { 0.0 };
    let ceiling = (high.log10() + 0.05).ceil().max(floor + 1.0);
    10_f64.powf(floor)..10_f64.powf(ceiling)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_hold_all_values_and_leave_room_for_zero() {
        let range = decades([2.0, 300.0].into_iter());
        assert!(range.start <= 1.0 && range.end >= 999.0, "{range:?}");
        let range = decades([0.0, 2.0].into_iter());
        assert!(range.start <= 0.11, "{range:?}");
        assert_eq!(decades(std::iter::empty()), 0.1..10.0);
    }

    #[test]
    fn plots_have_the_colours_that_the_page_replaces() {
        let text = |value: &f64| format!("{value}");
        let axes = Axes {
            x: "x",
            y: "y",
            x_text: &text,
            y_text: &text,
        };
        let groups = [Group {
            name: String::from("load"),
            bars: vec![("mediated", 0.0), ("trap", 1.0)],
        }];
        let svg = bars(&groups, &axes).unwrap();
        assert!(svg.starts_with("<svg"), "{svg:.80}");
        for color in ["#0B7A5E", "#C23A3A", "#010101"] {
            assert!(svg.contains(color), "{color}");
        }
    }
}
