//! Density layers: a million points as one small picture.
//!
//! A layer counts points per pixel and class; the picture shows the count by opacity, on a logarithmic scale, so that
//! a single slow request stays visible beside thousands of fast ones. Its size depends on its pixels, not its points.

use h2lab_base::units::base64;

/// Shades per class.
const SHADES: usize = 7;
/// The opacity of a pixel with a single point, 0 to 255: visible on white and on black.
const FAINTEST: u8 = 110;

/// A colour for one class of points: red, green, blue.
pub(super) type Colour = [u8; 3];

/// Points per pixel.
#[derive(Debug)]
pub(super) struct Density {
    width: usize,
    height: usize,
    colours: Vec<Colour>,
    /// Per class, row by row.
    counts: Vec<Vec<u32>>,
}

impl Density {
    /// An empty layer. Later classes are drawn over earlier ones.
    pub fn new(width: usize, height: usize, colours: &[Colour]) -> Self {
        let counts = colours.iter().map(|_| vec![0; width * height]).collect();
        Self { width, height, colours: colours.to_vec(), counts }
    }

    /// Counts a point of two by two pixels with its lower left corner at (x, y), both 0 to 1 from the lower left.
    pub fn point(&mut self, class: usize, x: f64, y: f64) {
        let column = (x.clamp(0.0, 1.0) * (self.width - 2) as f64).round() as usize;
        let row = self.height - 2 - (y.clamp(0.0, 1.0) * (self.height - 2) as f64).round() as usize;
        for (dx, dy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let count = &mut self.counts[class][(row + dy) * self.width + column + dx];
            *count = count.saturating_add(1);
        }
    }

    /// Counts a vertical tick that fills the rows from `top` to `bottom`, in pixels from the top.
    pub fn tick(&mut self, class: usize, x: f64, top: usize, bottom: usize) {
        let column = (x.clamp(0.0, 1.0) * (self.width - 1) as f64).round() as usize;
        for row in top..bottom.min(self.height) {
            self.counts[class][row * self.width + column] += 1;
        }
    }

    /// The picture as a PNG with a palette: index 0 is transparent, then [`SHADES`] per class.
    pub fn png(&self) -> Vec<u8> {
        let mut pixels = vec![0_u8; self.width * self.height];
        for (class, counts) in self.counts.iter().enumerate() {
            let most = counts.iter().copied().max().unwrap_or(0).max(2);
            for (pixel, &count) in pixels.iter_mut().zip(counts).filter(|(_, count)| **count > 0) {
                let shade = f64::from(count).ln() / f64::from(most).ln() * (SHADES - 1) as f64;
                *pixel = (1 + class * SHADES + shade.round() as usize) as u8;
            }
        }
        self.encode(&pixels)
    }

    fn encode(&self, pixels: &[u8]) -> Vec<u8> {
        let (mut palette, mut opacity) = (vec![0_u8; 3], vec![0_u8]);
        for colour in &self.colours {
            for shade in 0..SHADES {
                palette.extend(colour);
                let more = (255 - usize::from(FAINTEST)) * shade / (SHADES - 1);
                opacity.push(FAINTEST + more as u8);
            }
        }
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_palette(palette);
        encoder.set_trns(opacity);
        encoder.set_compression(png::Compression::High);
        let mut writer = encoder.write_header().expect("the header is sound and a vector takes all bytes");
        writer.write_image_data(pixels).expect("there are width × height pixels");
        writer.finish().expect("a vector takes all bytes");
        file
    }

    /// The picture as a `data:` URI.
    pub fn uri(&self) -> String {
        format!("data:image/png;base64,{}", base64(&self.png()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_land_in_their_corner_and_the_picture_decodes() {
        let mut density = Density::new(8, 4, &[[1, 2, 3], [4, 5, 6]]);
        density.point(0, 0.0, 0.0);
        density.point(1, 1.0, 1.0);
        let file = density.png();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
        let mut pixels = vec![0; 32];
        reader.next_frame(&mut pixels).unwrap();
        let set: Vec<usize> = (0..32).filter(|&i| pixels[i] != 0).collect();
        assert_eq!(set, [6, 7, 14, 15, 16, 17, 24, 25]);
        assert_eq!((pixels[24], pixels[7]), (1, 1 + SHADES as u8));
    }

    #[test]
    fn a_million_points_are_a_small_picture() {
        let mut random = h2lab_base::random::Counter::new(1, "points");
        let mut density = Density::new(620, 220, &[[0, 114, 178]]);
        for _ in 0..1_000_000 {
            density.point(0, random.next_f64(), random.next_f64());
        }
        assert!(density.uri().len() < 200_000, "{}", density.uri().len());
    }
}
