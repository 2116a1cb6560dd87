//! A picture by itself as pixels, for slides, tickets and chats that take no SVG.
//!
//! resvg draws it, with letters of fonts that come with the binary: a picture is the same on a machine without any font.
//! The fonts of the machine are not looked for, since core asks nothing of the machine it runs on.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb::Database};

/// Pixels per unit of the picture, so that small letters stay sharp on dense screens.
const DENSITY: f32 = 2.0;

/// The most pixels in height at [`DENSITY`]; taller pictures get a pixel per unit. Common viewers and GPUs stop here.
const TALLEST: f32 = 16_384.0;

/// Why there is no picture.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PaintError {
    /// Our own SVG was not understood.
    #[error("the picture cannot be drawn as pixels ({0}); write .svg, and report this as a defect of h2lab")]
    Svg(String),
    /// More pixels than a picture can have.
    #[error("a picture of {width} x {height} pixels is too large; write .svg")]
    TooLarge {
        /// In pixels.
        width: u32,
        /// In pixels.
        height: u32,
    },
}

/// An SVG as a PNG file, two pixels per unit.
///
/// # Errors
///
/// If `svg` is none, or if it has more pixels than fit.
pub(super) fn png(svg: &str) -> Result<Vec<u8>, PaintError> {
    let mut fonts = Database::new();
    for font in [epaint_default_fonts::UBUNTU_LIGHT, epaint_default_fonts::HACK_REGULAR] {
        fonts.load_font_data(font.to_vec());
    }
    fonts.set_sans_serif_family("Ubuntu");
    fonts.set_monospace_family("Hack");
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| PaintError::Svg(error.to_string()))?;
    let size = tree.size();
    let density = if size.height() * DENSITY > TALLEST { 1.0 } else { DENSITY };
    let [width, height] = [size.width(), size.height()].map(|side| (side * density).ceil() as u32);
    let mut pixels = Pixmap::new(width, height).ok_or(PaintError::TooLarge { width, height })?;
    resvg::render(&tree, Transform::from_scale(density, density), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| PaintError::Svg(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(height: u32, inside: &str) -> String {
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 100 {height}\">{inside}</svg>")
    }

    /// Width, height, and how many pixels are not white.
    fn drawn(svg: &str) -> (u32, u32, usize) {
        let file = png(svg).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let seen = reader.next_frame(&mut pixels).unwrap();
        let inked = pixels.chunks(4).filter(|pixel| pixel[3] > 0 && pixel[..3] != [255; 3]).count();
        (seen.width, seen.height, inked)
    }

    #[test]
    fn letters_are_drawn_whatever_fonts_the_machine_has() {
        let text = |letters: &str| {
            let style = "<style>text { font: 12px system-ui, \"DejaVu Sans\", sans-serif; }</style>";
            svg(20, &format!("{style}<text x=\"2\" y=\"15\">{letters}</text>"))
        };
        assert_eq!(drawn(&text("")), (200, 40, 0));
        // What no font of ours has shows what is drawn in place of a letter, if anything.
        let missing = png(&text("\u{12000}")).unwrap();
        for letter in ['A', '→', 'µ', '≥', '…', '·', '×'] {
            let picture = text(&letter.to_string());
            assert!(drawn(&picture).2 > 1 && png(&picture).unwrap() != missing, "{letter}");
        }
    }

    #[test]
    fn a_tall_picture_has_a_pixel_per_unit_and_what_is_none_is_an_error() {
        assert_eq!(drawn(&svg(9_000, "")), (100, 9_000, 0));
        assert!(matches!(png("no picture"), Err(PaintError::Svg(_))));
    }
}
