#!/usr/bin/env python3
"""Writes the images of tests/image/data: for each NAME.jpg or NAME.png its pixels as Pillow decodes them, NAME.WxH.rgb, and for
two of them what Pillow makes of them for a model's input, NAME.resized.rgb. Needs Pillow; the results are checked in.
"""
import io
import math
import struct
import zlib
from pathlib import Path

from PIL import Image, ImageOps

DATA = Path(__file__).resolve().parent / "data"
WIDTH, HEIGHT = 45, 31


def photo(width=WIDTH, height=HEIGHT):
    """Smooth colours with an edge, so that errors of the position show."""
    image = Image.new("RGB", (width, height))
    for y in range(height):
        for x in range(width):
            value = (x * 255 // width, y * 255 // height, int(127 + 120 * math.sin(x * 0.3 + y * 0.2)))
            image.putpixel((x, y), (255, 255, 255) if x < 6 and y < 4 else value)
    return image


def write(name, content):
    (DATA / name).write_bytes(content)


def expect(name, image):
    rgb = image.convert("RGB")
    write(f"{Path(name).stem}.{rgb.width}x{rgb.height}.rgb", rgb.tobytes())


def save(name, content):
    write(name, content)
    expect(name, ImageOps.exif_transpose(Image.open(io.BytesIO(content))))


def encoded(image, **options):
    out = io.BytesIO()
    image.save(out, **options)
    return out.getvalue()


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, depth, colour, rows, interlaced=False, extra=b""):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    data = b"".join(b"\0" + row for row in rows)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


def rows_of(image, step_x=1, step_y=1, from_x=0, from_y=0):
    for y in range(from_y, image.height, step_y):
        yield b"".join(bytes(image.getpixel((x, y))) for x in range(from_x, image.width, step_x))


def interlaced_rows(image):
    """The seven passes of Adam7."""
    for from_x, from_y, step_x, step_y in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        if from_x < image.width:
            yield from rows_of(image, step_x, step_y, from_x, from_y)


def write_jpegs(image):
    save("baseline.jpg", encoded(image, format="JPEG", quality=90))
    save("fine.jpg", encoded(image, format="JPEG", quality=95, subsampling=0))
    save("progressive.jpg", encoded(image, format="JPEG", quality=90, progressive=True))
    save("gray.jpg", encoded(image.convert("L"), format="JPEG", quality=90))
    cmyk = encoded(image.convert("CMYK"), format="JPEG", quality=90)
    save("cmyk.jpg", cmyk)
    # The same bytes, called YCCK: the last byte of Adobe's marker is the transform.
    at = cmyk.index(b"Adobe") + 11
    save("ycck.jpg", cmyk[:at] + b"\2" + cmyk[at + 1:])
    for orientation in range(2, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        save(f"turned{orientation}.jpg", encoded(image, format="JPEG", quality=90, exif=exif))


def write_pngs(image):
    save("colour.png", encoded(image, format="PNG"))
    save("gray8.png", encoded(image.convert("L"), format="PNG"))
    save("bits.png", encoded(image.convert("1"), format="PNG"))
    save("palette.png", encoded(image.quantize(13), format="PNG"))
    save("transparent_palette.png", encoded(image.quantize(7), format="PNG", transparency=3))
    alpha = image.convert("RGBA")
    alpha.putalpha(image.convert("L"))
    save("alpha.png", encoded(alpha, format="PNG"))
    write("interlaced.png", png(WIDTH, HEIGHT, 8, 2, interlaced_rows(image), interlaced=True))
    expect("interlaced.png", image)
    # Two bytes for each sample; the second one is noise.
    wide = [bytes(one for at, value in enumerate(row) for one in (value, at * 37 % 256)) for row in rows_of(image)]
    write("colour16.png", png(WIDTH, HEIGHT, 16, 2, wide))
    expect("colour16.png", image)
    gray = image.convert("L")
    wide = [bytes(one for x in range(WIDTH) for one in (gray.getpixel((x, y)), x * 37 % 256)) for y in range(HEIGHT)]
    write("gray16.png", png(WIDTH, HEIGHT, 16, 0, wide))
    expect("gray16.png", gray)


def resized(image, size, shorter):
    """As torchvision's Resize(shorter) and CenterCrop(size)."""
    width, height = image.size
    width, height = (shorter, max(shorter, shorter * height // width)) if width <= height else (max(shorter, shorter * width // height), shorter)
    image = image.resize((width, height), Image.BILINEAR)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def main():
    DATA.mkdir(exist_ok=True)
    image = photo()
    write_jpegs(image)
    write_pngs(image)
    big = photo(130, 97)
    save("wide.png", encoded(big, format="PNG"))
    write("wide.cover24.rgb", resized(big, 24, 24).tobytes())
    write("wide.crop24of32.rgb", resized(big, 24, 32).tobytes())
    write("colour.larger64.rgb", resized(image, 64, 64).tobytes())
    # What must be refused.
    whole = encoded(image, format="JPEG", quality=90)
    write("truncated.jpg", whole[:len(whole) * 2 // 3])
    whole = encoded(image, format="PNG")
    write("truncated.png", whole[:len(whole) * 2 // 3])
    write("flipped.png", whole[:70] + bytes([whole[70] ^ 0x55]) + whole[71:])
    write("huge.png", png(50000, 50000, 8, 2, [b"\0" * 3]))
    small = encoded(image, format="JPEG", quality=90)
    at = small.index(b"\xff\xc0") + 5
    write("huge.jpg", small[:at] + struct.pack(">HH", 50000, 50000) + small[at + 4:])


if __name__ == "__main__":
    main()
